#include "support/run_kernel.h"

#include "device/registry.h"
#include "support/device.h"

#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>

namespace weft::test {
namespace {

DeviceAddress address_of(const void* pointer) { return std::bit_cast<DeviceAddress>(pointer); }

std::uint32_t narrow(std::uint64_t axis) {
  const auto value = static_cast<std::uint32_t>(axis);
  if (value != axis) throw Error(ErrorCode::invalid, "A grid axis of the test exceeds 32 bits.");
  return value;
}

std::vector<std::byte> parameter_block(const CompiledKernel& compiled, const std::vector<Scalar>& parameters) {
  if (parameters.size() != compiled.parameters.size()) {
    throw Error(ErrorCode::invalid, "The test gives another number of parameters than the kernel has.");
  }
  std::vector<std::byte> block;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& layout = compiled.parameters[i];
    const std::vector<std::byte>& value = parameters[i].bytes;
    if (value.size() != layout.size) throw Error(ErrorCode::invalid, "A parameter of the test has the wrong width.");
    if (block.size() < layout.offset + layout.size) block.resize(layout.offset + layout.size);
    std::memcpy(block.data() + layout.offset, value.data(), value.size());
  }
  return block;
}

}  // namespace

LoadedKernel::LoadedKernel(DeviceApi& api, const KernelSpec& spec) : api_(api), block_(spec.block) {
  check(api_.load(spec.image, module_), "load the test's kernel");
  const DeviceStatus found = api_.find_kernel(module_, spec, kernel_, compiled_);
  if (!found.ok()) static_cast<void>(api_.unload(module_));
  check(found, "find the test's kernel");
}

LoadedKernel::~LoadedKernel() { static_cast<void>(api_.unload(module_)); }

void LoadedKernel::run(StreamHandle stream, const LaunchConfig& launch, const std::vector<Scalar>& parameters) {
  const KernelNode node{.kernel = kernel_,
                        .grid = {narrow(launch.grid.x), narrow(launch.grid.y), narrow(launch.grid.z)},
                        .block = block_,
                        .dynamic_shared_bytes = narrow(launch.dynamic_shared_bytes),
                        .parameters = parameter_block(compiled_, parameters)};
  GraphHandle graph = GraphHandle::none;
  NodeHandle handle = NodeHandle::none;
  ExecutableHandle executable = ExecutableHandle::none;
  check(api_.create_graph(graph), "create the test's graph");
  check(api_.add_node(graph, node, {}, handle), "add the test's kernel node");
  check(api_.instantiate(graph, executable), "instantiate the test's graph");
  check(api_.destroy_graph(graph), "destroy the test's graph");
  check(api_.launch(executable, stream), "launch the test's graph");
  check(api_.synchronize_stream(stream), "wait for the test's graph");
  check(api_.destroy_executable(executable), "destroy the test's executable");
}

void run_kernel(const KernelSpec& spec, const LaunchConfig& launch, const std::vector<KernelArgument>& arguments) {
  struct Copy {
    std::span<std::byte> bytes;
    DeviceAddress address;
  };
  const std::shared_ptr<DeviceApi> api = open_device(test_device());
  // Opening a GPU takes longer than the rest.
  static const std::shared_ptr<DeviceApi> kept_open = on_cuda() ? api : nullptr;
  StreamHandle stream = StreamHandle::none;
  check(api->create_stream(stream), "create the test's stream");

  std::vector<Copy> copies;
  std::vector<Scalar> parameters;
  for (const KernelArgument& argument : arguments) {
    if (const auto* scalar = std::get_if<Scalar>(&argument)) {
      parameters.push_back(*scalar);
      continue;
    }
    const auto& [bytes, offset] = std::get<BufferArgument>(argument);
    DeviceAddress address = 0;
    check(api->allocate(stream, bytes.size(), address), "allocate the test's buffer");
    check(api->copy(stream, {address, address_of(bytes.data()), bytes.size()}), "copy the test's buffer in");
    copies.push_back({bytes, address});
    parameters.emplace_back(address + offset);
  }

  {
    LoadedKernel kernel(*api, spec);
    kernel.run(stream, launch, parameters);
  }
  for (const Copy& copy : copies) {
    check(api->copy(stream, {address_of(copy.bytes.data()), copy.address, copy.bytes.size()}),
          "copy the test's buffer back");
    check(api->free(stream, copy.address), "free the test's buffer");
  }
  check(api->synchronize_stream(stream), "wait for the test's copies");
  check(api->destroy_stream(stream), "destroy the test's stream");
}

void run_kernel(const KernelSpec& spec, const Workload& workload, const std::vector<KernelArgument>& arguments) {
  run_kernel(spec, spec.launch(workload.words), arguments);
}

}  // namespace weft::test
