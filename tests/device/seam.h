#pragma once

#include "device/device_api.h"
#include "device/handles.h"
#include <weft/typed_kernel.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <vector>

// What the tests of the seam share: short words for the steps that every test needs and none examines. What a test does
// examine, it calls on the device itself.

namespace weft::test {

/// A kernel found on a device, and how to make nodes of it.
struct SeamKernel {
  KernelHandle handle = KernelHandle::none;
  CompiledKernel compiled;
  Dim3 block;

  /// A launch; arguments have the parameters' exact types, bindings as DeviceAddress.
  template <class... A>
  [[nodiscard]] KernelNode node(Dim3 grid, A... arguments) const {
    KernelNode launch{.kernel = handle, .grid = grid, .block = block, .parameters = {}};
    const auto& last = compiled.parameters.back();
    launch.parameters.resize(last.offset + last.size);
    std::size_t next = 0;
    (std::memcpy(launch.parameters.data() + compiled.parameters.at(next++).offset, &arguments, sizeof(A)), ...);
    return launch;
  }
};

/// A device with a stream, and memory that is freed at the end. Failures of its steps throw.
class Seam {
 public:
  explicit Seam(std::shared_ptr<DeviceApi> api);
  Seam(const Seam&) = delete;
  Seam& operator=(const Seam&) = delete;
  ~Seam();

  [[nodiscard]] DeviceApi& operator*() const noexcept { return *api_; }
  [[nodiscard]] DeviceApi* operator->() const noexcept { return api_.get(); }
  [[nodiscard]] StreamHandle stream() const noexcept { return stream_.get(); }
  [[nodiscard]] UniqueStream another_stream() const { return create_stream(api_); }

  [[nodiscard]] DeviceAddress memory(std::uint64_t bytes);
  [[nodiscard]] PinnedMemory pinned(std::uint64_t bytes);
  template <class T>
  [[nodiscard]] DeviceAddress memory_of(const std::vector<T>& values) {
    const DeviceAddress address = memory(values.size() * sizeof(T));
    write(address, values.data(), values.size() * sizeof(T));
    return address;
  }
  template <class T>
  [[nodiscard]] std::vector<T> values(DeviceAddress address, std::size_t count) const {
    std::vector<T> result(count);
    read(address, result.data(), count * sizeof(T));
    return result;
  }
  void synchronize() const;

  /// Loads the spec's image and finds its kernel.
  [[nodiscard]] SeamKernel kernel(const KernelSpec& spec);

  [[nodiscard]] UniqueGraph graph() const { return create_graph(api_); }
  NodeHandle add(const UniqueGraph& graph, const Node& node, std::initializer_list<NodeHandle> after = {}) const;
  [[nodiscard]] UniqueExecutable instantiate(const UniqueGraph& graph) const;
  /// Launches once on this seam's stream and waits.
  void run(const UniqueExecutable& executable) const;
  void run(const UniqueGraph& graph) const { run(instantiate(graph)); }

  /// The status of adding a node to a fresh graph.
  [[nodiscard]] DeviceStatus try_add(const Node& node) const;

 private:
  void write(DeviceAddress address, const void* source, std::size_t bytes) const;
  void read(DeviceAddress address, void* destination, std::size_t bytes) const;

  std::shared_ptr<DeviceApi> api_;
  UniqueStream stream_;
  std::vector<UniqueModule> modules_;
  std::vector<DeviceAddress> allocations_;
  std::vector<PinnedMemory> pinned_;
};

/// The device that the suite runs on.
[[nodiscard]] std::shared_ptr<DeviceApi> open_test_device();

}  // namespace weft::test
