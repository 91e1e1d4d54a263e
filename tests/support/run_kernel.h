#pragma once

#include "device/device_api.h"
#include <weft/command.h>
#include <weft/kernel.h>

#include <cstddef>
#include <span>
#include <variant>
#include <vector>

namespace weft::test {

/// A kernel loaded straight through the seam, below sessions and plans.
class LoadedKernel {
 public:
  /// `api` outlives this object.
  LoadedKernel(DeviceApi& api, const KernelSpec& spec);
  LoadedKernel(const LoadedKernel&) = delete;
  LoadedKernel& operator=(const LoadedKernel&) = delete;
  ~LoadedKernel();

  [[nodiscard]] const CompiledKernel& compiled() const noexcept { return compiled_; }

  /// Launches a graph of this one node and waits for it. A binding is given as its DeviceAddress.
  void run(StreamHandle stream, const LaunchConfig& launch, const std::vector<Scalar>& parameters);

 private:
  DeviceApi& api_;  // not owned
  Dim3 block_;
  ModuleHandle module_ = ModuleHandle::none;
  KernelHandle kernel_ = KernelHandle::none;
  CompiledKernel compiled_;
};

/// A binding: its memory holds `bytes`, and the kernel's pointer stands `offset` bytes into it.
struct BufferArgument {
  std::span<std::byte> bytes;  // not owned
  std::size_t offset = 0;
};

/// A binding of all of `values`, which it does not own.
template <class T>
[[nodiscard]] BufferArgument buffer(std::vector<T>& values) {
  return {std::as_writable_bytes(std::span(values)), 0};
}

using KernelArgument = std::variant<BufferArgument, Scalar>;

/// Runs one launch of a kernel on test_device(). Every buffer is copied in before and back after, so that the bytes
/// around what the kernel owns can be checked too.
void run_kernel(const KernelSpec& spec, const LaunchConfig& launch, const std::vector<KernelArgument>& arguments);

/// The same, with the launch that the spec's rule gives for this workload.
void run_kernel(const KernelSpec& spec, const Workload& workload, const std::vector<KernelArgument>& arguments);

}  // namespace weft::test
