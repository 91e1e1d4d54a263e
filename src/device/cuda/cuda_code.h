#pragma once

#include "device/cuda/primary_context.h"

#include <map>
#include <memory>
#include <mutex>

namespace weft::cuda {

/// What a KernelHandle points to.
struct CudaKernel {
  CUkernel kernel = nullptr;
  CompiledKernel compiled;
};

/// The modules that a device has loaded, and their kernels. Thread-safe.
class CudaCode {
 public:
  explicit CudaCode(PrimaryContext& context) noexcept : context_(context) {}
  CudaCode(const CudaCode&) = delete;
  CudaCode& operator=(const CudaCode&) = delete;
  /// Unloads what is still loaded.
  ~CudaCode();

  DeviceStatus load(const CodeImage& image, ModuleHandle& module);
  DeviceStatus unload(ModuleHandle module) noexcept;
  DeviceStatus find(ModuleHandle module, const char* symbol, KernelHandle& kernel, CompiledKernel& compiled);
  DeviceStatus raise_dynamic_shared(CudaKernel& kernel, std::uint32_t bytes) noexcept;

 private:
  // A symbol looked up twice is one kernel; addresses stay while the module is loaded.
  using Kernels = std::map<CUkernel, std::unique_ptr<CudaKernel>>;
  using Modules = std::map<CUlibrary, Kernels>;

  DeviceStatus load_code_now(CUlibrary library) noexcept;
  DeviceStatus read_compiled(CUkernel kernel, CompiledKernel& compiled);
  DeviceStatus kernel_attribute(CUkernel kernel, CUfunction_attribute which, std::uint32_t& value) noexcept;

  PrimaryContext& context_;
  std::mutex mutex_;
  Modules modules_;
};

}  // namespace weft::cuda
