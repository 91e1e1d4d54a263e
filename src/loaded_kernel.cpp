#include "loaded_kernel.h"

#include "error_context.h"
#include "refusal.h"
#include "unique_id.h"
#include <weft/error.h>
#include <weft/plan/arena.h>

#include <spdlog/fmt/fmt.h>

#include <bit>
#include <cstring>
#include <string>
#include <utility>

namespace weft {

namespace {

std::string describe(const Parameter& parameter, std::size_t index) {
  return parameter.name.empty() ? fmt::format("parameter {}", index)
                                : fmt::format("parameter {} (\"{}\")", index, parameter.name);
}

// Block clusters need an attribute of the launch that no node carries yet.
void require_no_cluster(const Dim3& cluster) {
  if (cluster == Dim3{}) return;
  throw Error(ErrorCode::unsupported,
              fmt::format("The spec asks for clusters of ({},{},{}) blocks; weft launches none.", cluster.x, cluster.y,
                          cluster.z));
}

void validate_parameter(const Parameter& parameter, std::size_t index) {
  require_enumerator("kind of " + describe(parameter, index), parameter.kind, ParameterKind::bytes);
  require_enumerator("access of " + describe(parameter, index), parameter.access, Access::read_write);
  if (parameter.size == 0) refuse(fmt::format("The spec gives {} 0 bytes.", describe(parameter, index)));
  if (parameter.kind == ParameterKind::binding && parameter.size != sizeof(DeviceAddress)) {
    refuse(fmt::format("The binding {} has {} bytes; a device pointer has {}.", describe(parameter, index),
                       parameter.size, sizeof(DeviceAddress)));
  }
  // A struct's alignment is that of the regions behind its pointers.
  if (parameter.kind == ParameterKind::binding || parameter.kind == ParameterKind::bytes) {
    if (!std::has_single_bit(parameter.required_alignment())) {
      refuse(fmt::format("The alignment of {} is {} bytes, which is not a power of two.", describe(parameter, index),
                         parameter.required_alignment()));
    }
    if (parameter.required_alignment() > kArenaAlignment) {
      refuse(fmt::format("The alignment of {} is {} bytes; weft's storage starts at multiples of {}.",
                         describe(parameter, index), parameter.required_alignment(), kArenaAlignment));
    }
  }
  if (parameter.kind == ParameterKind::index && parameter.size != 4 && parameter.size != 8) {
    refuse(fmt::format("The index {} has {} bytes; an index has 4 or 8.", describe(parameter, index), parameter.size));
  }
}

std::uint64_t threads_of(const Dim3& block) {
  return std::uint64_t{block.x} * block.y * block.z;  // Each axis is at most the device's limit when this is compared.
}

void validate_block(const KernelSpec& spec, const CompiledKernel& compiled, const DeviceLimits& limits) {
  const auto axis = [](const char* name, std::uint32_t value, std::uint32_t limit) {
    if (value == 0 || value > limit)
      refuse(fmt::format("The block's {} is {}; it must be between 1 and {}.", name, value, limit));
  };
  axis("x", spec.block.x, limits.max_block.x);
  axis("y", spec.block.y, limits.max_block.y);
  axis("z", spec.block.z, limits.max_block.z);
  const std::uint64_t threads = threads_of(spec.block);
  if (threads > limits.max_threads_per_block) {
    refuse(fmt::format("The block has {} threads; the device allows {}.", threads, limits.max_threads_per_block));
  }
  if (threads > compiled.max_threads_per_block) {
    refuse(fmt::format("The block has {} threads; the kernel is compiled for at most {}.", threads,
                       compiled.max_threads_per_block));
  }
}

// Nothing is told of a bare 64-bit word by most compilers, hence `unknown`. A scalar may stand for a pointer that gets
// no region (Triton's kernels have two): it may then be null alone, see takes_null_only.
void validate_kind(const Parameter& parameter, std::size_t index, CompiledKernel::ParameterLayout::Kind compiled) {
  using enum CompiledKernel::ParameterLayout::Kind;
  if (compiled == value && parameter.kind == ParameterKind::binding) {
    refuse(fmt::format("The spec makes {} a binding; the compiled kernel takes a value there and no pointer.",
                       describe(parameter, index)));
  }
  if (compiled == pointer && parameter.kind != ParameterKind::binding && parameter.kind != ParameterKind::scalar) {
    refuse(fmt::format("The spec makes {} {}; the compiled kernel takes a pointer there.", describe(parameter, index),
                       parameter.kind == ParameterKind::index ? "an index" : "a struct passed by value"));
  }
}

void validate_layout(const KernelSpec& spec, const CompiledKernel& compiled) {
  if (spec.parameters.size() != compiled.parameters.size()) {
    refuse(fmt::format("The spec has {} parameters; the compiled kernel has {}.", spec.parameters.size(),
                       compiled.parameters.size()));
  }
  for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
    if (spec.parameters[i].size != compiled.parameters[i].size) {
      refuse(fmt::format("The spec gives {} {} bytes; the compiled kernel gives it {}.",
                         describe(spec.parameters[i], i), spec.parameters[i].size, compiled.parameters[i].size));
    }
    validate_kind(spec.parameters[i], i, compiled.parameters[i].kind);
  }
}

}  // namespace

bool takes_null_only(const LoadedKernel& kernel, std::size_t parameter) noexcept {
  return kernel.spec.parameters[parameter].kind == ParameterKind::scalar &&
         kernel.compiled.parameters[parameter].kind == CompiledKernel::ParameterLayout::Kind::pointer;
}

std::vector<std::byte> parameter_block(const CompiledKernel& compiled, std::span<const std::uint64_t> values) {
  std::vector<std::byte> block(compiled.parameter_bytes());
  for (std::size_t i = 0; i < values.size(); ++i)
    std::memcpy(&block[compiled.parameters[i].offset], &values[i], compiled.parameters[i].size);
  return block;
}

LoadedModule load_module(const std::shared_ptr<DeviceApi>& api, const CodeImage& image) {
  return in_context([&] { return fmt::format("loading the code image \"{}\"", image.label); },
                    [&] {
                      ModuleHandle module{};
                      const DeviceStatus loaded = api->load(image, module);
                      if (loaded.code == StatusCode::invalid) {
                        refuse(fmt::format("The device does not take its {} bytes as a fatbin, a cubin or PTX ({}).",
                                           image.bytes.size(), loaded.detail));
                      }
                      check(loaded, "load code");
                      return std::make_shared<const UniqueModule>(api, module);
                    });
}

std::shared_ptr<const LoadedKernel> load_kernel(DeviceApi& api, LoadedModule module, const KernelSpec& spec) {
  return in_context([&] { return fmt::format("loading kernel \"{}\"", spec.name()); },
                    [&] {
                      auto kernel = std::make_shared<LoadedKernel>();
                      kernel->id = next_unique_id();
                      kernel->spec = spec;
                      kernel->spec.image.bytes = {};  // The caller's bytes may go once the module is loaded.
                      kernel->module = std::move(module);
                      require_no_cluster(spec.cluster);
                      for (std::size_t i = 0; i < spec.parameters.size(); ++i)
                        validate_parameter(spec.parameters[i], i);
                      const DeviceStatus found =
                          api.find_kernel(kernel->module->get(), spec, kernel->handle, kernel->compiled);
                      if (found.code == StatusCode::invalid) {
                        refuse(fmt::format("The code image \"{}\" gives no kernel with the symbol \"{}\": {}.",
                                           spec.image.label, spec.symbol, found.detail));
                      }
                      check(found, "find a kernel");
                      validate_layout(spec, kernel->compiled);
                      validate_block(spec, kernel->compiled, api.limits());
                      return std::shared_ptr<const LoadedKernel>(std::move(kernel));
                    });
}

}  // namespace weft
