#include "loaded_kernel.h"

#include "error_context.h"
#include "refusal.h"
#include "unique_id.h"
#include <weft/error.h>
#include <weft/plan/arena.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
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

constexpr std::uint64_t kMaxCluster = 16;
constexpr std::uint32_t kOldestWithClusters = 90;

std::string describe(const Dim3& dim) { return fmt::format("({},{},{})", dim.x, dim.y, dim.z); }

void validate_cluster(const Dim3& cluster, const DeviceLimits& limits) {
  if (cluster == Dim3{}) return;
  if (cluster.x == 0 || cluster.y == 0 || cluster.z == 0)
    refuse(fmt::format("The cluster is {}; no axis may be 0.", describe(cluster)));
  // One axis after the other, since the product of all could overflow.
  if (cluster.x > kMaxCluster || std::uint64_t{cluster.x} * cluster.y > kMaxCluster ||
      std::uint64_t{cluster.x} * cluster.y * cluster.z > kMaxCluster) {
    refuse(fmt::format("The cluster is {}; a cluster has at most {} blocks.", describe(cluster), kMaxCluster));
  }
  if (limits.compute_capability < kOldestWithClusters) {
    throw Error(ErrorCode::unsupported,
                fmt::format("The spec asks for clusters of {} blocks; {} is sm_{}, and clusters need sm_{} or newer.",
                            describe(cluster), limits.name, limits.compute_capability, kOldestWithClusters));
  }
}

void validate_compiled_cluster(const KernelSpec& spec, const CompiledKernel& compiled) {
  if (compiled.cluster && *compiled.cluster != spec.cluster) {
    refuse(fmt::format("The spec's cluster is {}; the kernel is compiled for clusters of {} blocks.",
                       describe(spec.cluster), describe(*compiled.cluster)));
  }
  if (compiled.needs_cluster && !compiled.cluster && spec.cluster == Dim3{})
    refuse("The spec has no cluster; the kernel is compiled for clusters alone.");
}

void validate_globals(const KernelSpec& spec) {
  if (!spec.globals.empty() && spec.image.native.function != nullptr) {
    refuse(
        fmt::format("The spec sets the variable \"{}\" of a kernel of the program; only an image of its own has "
                    "variables to set.",
                    spec.globals.front().name));
  }
  for (std::size_t i = 0; i < spec.globals.size(); ++i) {
    const std::string& name = spec.globals[i].name;
    const auto first = std::ranges::find(spec.globals, name, &ModuleGlobal::name) - spec.globals.begin();
    if (static_cast<std::size_t>(first) != i) refuse(fmt::format("The spec sets the variable \"{}\" twice.", name));
  }
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

// Before anything is made of so many.
void validate_hidden_pointers(std::uint32_t count) {
  constexpr std::uint32_t kMost = 4095;  // No device takes 32 KiB of parameters.
  if (count > kMost) refuse(fmt::format("The spec has {} hidden pointers; a kernel has at most {}.", count, kMost));
}

void validate_layout(const KernelSpec& spec, const CompiledKernel& compiled) {
  if (spec.parameters.size() + spec.hidden_pointers != compiled.parameters.size()) {
    const std::string hidden =
        spec.hidden_pointers == 0 ? "" : fmt::format(" and {} hidden pointers", spec.hidden_pointers);
    refuse(fmt::format("The spec has {} parameters{}; the compiled kernel has {}.", spec.parameters.size(), hidden,
                       compiled.parameters.size()));
  }
  for (std::size_t i = 0; i < spec.parameters.size(); ++i) {
    if (spec.parameters[i].size != compiled.parameters[i].size) {
      refuse(fmt::format("The spec gives {} {} bytes; the compiled kernel gives it {}.",
                         describe(spec.parameters[i], i), spec.parameters[i].size, compiled.parameters[i].size));
    }
    validate_kind(spec.parameters[i], i, compiled.parameters[i].kind);
  }
  for (std::size_t i = spec.parameters.size(); i < compiled.parameters.size(); ++i) {
    const CompiledKernel::ParameterLayout& hidden = compiled.parameters[i];
    if (hidden.size != sizeof(DeviceAddress) || hidden.kind == CompiledKernel::ParameterLayout::Kind::value) {
      refuse(
          fmt::format("The spec makes parameter {} a hidden pointer; the compiled kernel takes a value of {} bytes "
                      "there.",
                      i, hidden.size));
    }
  }
}

}  // namespace

bool takes_null_only(const LoadedKernel& kernel, std::size_t parameter) noexcept {
  return kernel.spec.parameters[parameter].kind == ParameterKind::scalar &&
         kernel.compiled.parameters[parameter].kind == CompiledKernel::ParameterLayout::Kind::pointer;
}

std::optional<std::size_t> parameter_at(const LoadedKernel& kernel, std::uint32_t block_offset) noexcept {
  for (std::size_t i = 0; i < kernel.spec.parameters.size(); ++i) {
    const auto& [offset, size, kind] = kernel.compiled.parameters[i];
    if (block_offset >= offset && block_offset - offset < size) return i;
  }
  return {};
}

std::vector<std::byte> parameter_block(const CompiledKernel& compiled, std::span<const std::uint64_t> values) {
  std::vector<std::byte> block(compiled.parameter_bytes());
  for (std::size_t i = 0; i < values.size(); ++i)
    std::memcpy(&block[compiled.parameters[i].offset], &values[i], compiled.parameters[i].size);
  return block;
}

void require_launchable(const LoadedKernel& kernel, const Dim3& grid, std::uint32_t dynamic_shared_bytes) {
  const KernelSpec& spec = kernel.spec;
  const auto axis = [&](const char* name, std::uint32_t blocks, std::uint32_t of_cluster) {
    if (blocks % of_cluster != 0) {
      refuse(fmt::format("The grid's {} is {}; it must be a multiple of the cluster's, which is {}.", name, blocks,
                         of_cluster));
    }
  };
  axis("x", grid.x, spec.cluster.x);
  axis("y", grid.y, spec.cluster.y);
  axis("z", grid.z, spec.cluster.z);
  if (!spec.cooperative && spec.cluster == Dim3{}) return;

  std::uint64_t resident = 0;
  const KernelNode launch{.kernel = kernel.handle,
                          .grid = grid,
                          .block = spec.block,
                          .dynamic_shared_bytes = dynamic_shared_bytes,
                          .parameters = {},
                          .cluster = spec.cluster,
                          .cooperative = spec.cooperative};
  check(kernel.module->api().max_resident_blocks(launch, resident), "tell how many blocks it holds at once");
  if (resident == 0) {
    refuse(
        fmt::format("The device cannot hold one cluster of {} blocks of {} threads with {} bytes of dynamic shared "
                    "memory each.",
                    describe(spec.cluster), threads_of(spec.block), dynamic_shared_bytes));
  }
  // The product of two axes that fit a grid stays below 2^48.
  const std::uint64_t plane = std::uint64_t{grid.x} * grid.y;
  if (spec.cooperative && (plane > resident || plane * grid.z > resident)) {
    refuse(fmt::format("The grid is {}; the device holds {} blocks of this cooperative launch at once.", describe(grid),
                       resident));
  }
}

LoadedModule load_module(const std::shared_ptr<DeviceApi>& api, const CodeImage& image) {
  return in_context([&] { return fmt::format("loading the code image \"{}\"", image.label); },
                    [&] {
                      ModuleHandle module{};
                      std::string log;
                      const DeviceStatus loaded = api->load(image, module, &log);
                      const bool is_faulty = loaded.code == StatusCode::invalid || !log.empty();
                      if (!loaded.ok() && is_faulty) {
                        const std::string said = log.empty() ? "" : fmt::format(" The driver's compiler says: {}", log);
                        refuse(fmt::format("The device does not take its {} bytes as a fatbin, a cubin or PTX ({}).{}",
                                           image.bytes.size(), loaded.detail, said));
                      }
                      check(loaded, "load code");
                      return std::make_shared<const UniqueModule>(api, module);
                    });
}

std::vector<DeviceAddress> find_globals(const LoadedModule& module, const KernelSpec& spec) {
  return in_context([&] { return fmt::format("loading kernel \"{}\"", spec.name()); },
                    [&] {
                      validate_globals(spec);
                      std::vector<DeviceAddress> addresses;
                      for (const ModuleGlobal& global : spec.globals) {
                        GlobalVariable variable;
                        const DeviceStatus found = module->api().find_global(module->get(), global.name, variable);
                        if (found.code == StatusCode::invalid) {
                          refuse(fmt::format("The code image \"{}\" has no variable \"{}\" ({}).", spec.image.label,
                                             global.name, found.detail));
                        }
                        check(found, "find a variable");
                        if (variable.address != 0 && variable.bytes != global.bytes.size()) {
                          refuse(
                              fmt::format("The spec gives the variable \"{}\" {} bytes; in the code image \"{}\" it "
                                          "has {}.",
                                          global.name, global.bytes.size(), spec.image.label, variable.bytes));
                        }
                        addresses.push_back(variable.address);
                      }
                      return addresses;
                    });
}

std::shared_ptr<const LoadedKernel> load_kernel(DeviceApi& api, LoadedModule module, const KernelSpec& spec) {
  return in_context([&] { return fmt::format("loading kernel \"{}\"", spec.name()); },
                    [&] {
                      auto kernel = std::make_shared<LoadedKernel>();
                      kernel->id = next_unique_id();
                      kernel->spec = spec;
                      kernel->spec.image.bytes = {};  // The bytes may go once the module is loaded.
                      kernel->spec.image.owner = nullptr;
                      kernel->module = std::move(module);
                      validate_cluster(spec.cluster, api.limits());
                      for (std::size_t i = 0; i < spec.parameters.size(); ++i)
                        validate_parameter(spec.parameters[i], i);
                      validate_hidden_pointers(spec.hidden_pointers);
                      const DeviceStatus found =
                          api.find_kernel(kernel->module->get(), spec, kernel->handle, kernel->compiled);
                      if (found.code == StatusCode::invalid) {
                        refuse(fmt::format("The code image \"{}\" gives no kernel with the symbol \"{}\": {}.",
                                           spec.image.label, spec.symbol, found.detail));
                      }
                      check(found, "find a kernel");
                      validate_layout(spec, kernel->compiled);
                      validate_block(spec, kernel->compiled, api.limits());
                      validate_compiled_cluster(spec, kernel->compiled);
                      return std::shared_ptr<const LoadedKernel>(std::move(kernel));
                    });
}

}  // namespace weft
