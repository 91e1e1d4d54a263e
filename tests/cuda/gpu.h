#pragma once

#include "device/own_kernels.h"
#include "device/registry.h"

#include <cstring>
#include <span>
#include <vector>

namespace weft::test {

/// Throws the weft::Error of a verb that fails.
inline void must(DeviceStatus status) { check(status, "do what the test needs"); }

/// The GPU through the seam, with a stream and weft's own kernels, for a test of one thread.
class Gpu {
 public:
  struct Kernel {
    KernelHandle handle{};
    CompiledKernel compiled = {};
    Dim3 block;
  };

  Gpu() {
    must(api->create_stream(stream));
    must(api->load(own::copy_spec().image, module));
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  ~Gpu() {
    static_cast<void>(api->synchronize_stream(stream));
    static_cast<void>(api->unload(module));
    static_cast<void>(api->destroy_stream(stream));
  }

  [[nodiscard]] Kernel kernel(const KernelSpec& spec) const {
    Kernel found{.block = spec.block};
    must(api->find_kernel(module, spec, found.handle, found.compiled));
    return found;
  }

  [[nodiscard]] DeviceAddress allocate(std::uint64_t bytes) const {
    DeviceAddress address = 0;
    must(api->allocate(stream, bytes, address));
    return address;
  }

  [[nodiscard]] std::vector<std::byte> read(DeviceAddress address, std::uint64_t bytes) const {
    std::vector<std::byte> host(bytes);
    must(api->copy(stream, {reinterpret_cast<DeviceAddress>(host.data()), address, bytes}));
    must(api->synchronize_stream(stream));
    return host;
  }

  void write(DeviceAddress address, std::span<const std::byte> host) const {
    must(api->copy(stream, {address, reinterpret_cast<DeviceAddress>(host.data()), host.size()}));
    must(api->synchronize_stream(stream));
  }

  /// Instantiates, launches once, waits, destroys.
  void run(GraphHandle graph) const {
    ExecutableHandle executable{};
    must(api->instantiate(graph, executable));
    must(api->launch(executable, stream));
    must(api->synchronize_stream(stream));
    must(api->destroy_executable(executable));
  }

  std::shared_ptr<DeviceApi> api = open_device(Device::cuda());
  StreamHandle stream{};
  ModuleHandle module{};
};

/// A node of `kernel` with these arguments, each at its compiled offset.
template <class... Arguments>
[[nodiscard]] KernelNode launch_of(const Gpu::Kernel& kernel, Dim3 grid, Arguments... arguments) {
  KernelNode node;
  node.kernel = kernel.handle;
  node.grid = grid;
  node.block = kernel.block;
  node.parameters.resize(kernel.compiled.parameters.back().offset + kernel.compiled.parameters.back().size);
  std::size_t index = 0;
  const auto place = [&](const auto& argument) {
    const auto& layout = kernel.compiled.parameters.at(index++);
    if (layout.size != sizeof(argument)) throw Error(ErrorCode::invalid, "An argument has not its parameter's width.");
    std::memcpy(node.parameters.data() + layout.offset, &argument, sizeof(argument));
  };
  (place(arguments), ...);
  return node;
}

}  // namespace weft::test
