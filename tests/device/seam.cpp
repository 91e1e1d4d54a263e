#include "device/seam.h"

#include "device/registry.h"
#include "support/device.h"

namespace weft::test {

std::shared_ptr<DeviceApi> open_test_device() { return open_device(test_device()); }

Seam::Seam(std::shared_ptr<DeviceApi> api) : api_(std::move(api)), stream_(create_stream(api_)) {}

Seam::~Seam() {
  // A test that lost its device has nothing left to give back.
  static_cast<void>(api_->synchronize_stream(stream()));
  for (const DeviceAddress address : allocations_) static_cast<void>(api_->free(stream(), address));
  for (const PinnedMemory& memory : pinned_) static_cast<void>(api_->free_pinned(memory.host));
  static_cast<void>(api_->synchronize_stream(stream()));
}

DeviceAddress Seam::memory(std::uint64_t bytes) {
  DeviceAddress address = 0;
  check(api_->allocate(stream(), bytes, address), "allocate");
  allocations_.push_back(address);
  return address;
}

PinnedMemory Seam::pinned(std::uint64_t bytes) {
  PinnedMemory memory;
  check(api_->allocate_pinned(bytes, memory), "allocate pinned memory");
  pinned_.push_back(memory);
  return memory;
}

void Seam::write(DeviceAddress address, const void* source, std::size_t bytes) const {
  check(api_->copy(stream(), {address, reinterpret_cast<DeviceAddress>(source), bytes}), "copy in");
  synchronize();
}

void Seam::read(DeviceAddress address, void* destination, std::size_t bytes) const {
  check(api_->copy(stream(), {reinterpret_cast<DeviceAddress>(destination), address, bytes}), "copy out");
  synchronize();
}

void Seam::synchronize() const {
  const DeviceStatus status = api_->synchronize_stream(stream());
  // Host memory must outlive the copies that were queued on it, also where a test makes this wait fail.
  if (!status.ok()) static_cast<void>(api_->synchronize_stream(stream()));
  check(status, "synchronize");
}

SeamKernel Seam::kernel(const KernelSpec& spec) {
  ModuleHandle module{};
  check(api_->load(spec.image, module), "load");
  modules_.emplace_back(api_, module);
  SeamKernel kernel{.compiled = {}, .block = spec.block};
  check(api_->find_kernel(module, spec, kernel.handle, kernel.compiled), "find a kernel");
  return kernel;
}

NodeHandle Seam::add(const UniqueGraph& graph, const Node& node, std::initializer_list<NodeHandle> after) const {
  std::vector<Edge> edges;
  for (const NodeHandle from : after) edges.push_back({from});
  NodeHandle handle{};
  check(api_->add_node(graph.get(), node, edges, handle), "add a node");
  return handle;
}

UniqueExecutable Seam::instantiate(const UniqueGraph& graph) const { return weft::instantiate(api_, graph.get()); }

void Seam::run(const UniqueExecutable& executable) const {
  check(api_->launch(executable.get(), stream()), "launch");
  synchronize();
}

DeviceStatus Seam::try_add(const Node& node) const {
  const UniqueGraph target = graph();
  NodeHandle handle{};
  return api_->add_node(target.get(), node, {}, handle);
}

}  // namespace weft::test
