#pragma once

#include "device/cubin.h"
#include "device/cuda/primary_context.h"

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace weft::cuda {

/// What a KernelHandle points to.
struct CudaKernel {
  CUkernel kernel = nullptr;
  CompiledKernel compiled;
};

/// What a ModuleHandle points to.
struct CudaModule {
  CUlibrary library = nullptr;  ///< Null: the program's own kernels, which its CUDA runtime has loaded.
  CubinKernels cubin;           ///< Empty unless the image is a cubin.
  std::vector<char> log;        ///< Where the driver's compiler writes what it refuses; as long as it may.
  /// A symbol looked up twice is one kernel; addresses stay while the module is loaded.
  std::map<CUkernel, std::unique_ptr<CudaKernel>> kernels;
};

/// The modules that a device has loaded, and their kernels. Thread-safe.
class CudaCode {
 public:
  explicit CudaCode(PrimaryContext& context) noexcept : context_(context) {}
  CudaCode(const CudaCode&) = delete;
  CudaCode& operator=(const CudaCode&) = delete;
  /// Unloads what is still loaded.
  ~CudaCode();

  DeviceStatus load(const CodeImage& image, ModuleHandle& module, std::string* log);
  DeviceStatus unload(ModuleHandle module) noexcept;
  DeviceStatus find(ModuleHandle module, const KernelSpec& spec, KernelHandle& kernel, CompiledKernel& compiled);
  DeviceStatus find_global(ModuleHandle module, const std::string& name, GlobalVariable& variable) noexcept;
  DeviceStatus raise_dynamic_shared(CudaKernel& kernel, std::uint32_t bytes) noexcept;
  DeviceStatus max_resident_blocks(const KernelNode& launch, std::uint64_t& blocks) noexcept;

 private:
  using Modules = std::map<CudaModule*, std::unique_ptr<CudaModule>>;

  DeviceStatus load_library(std::span<const std::byte> image, CudaModule& module);
  DeviceStatus load_code_now(CUlibrary library) noexcept;
  /// The handle that the spec's image and symbol name.
  DeviceStatus look_up(const CudaModule& module, const KernelSpec& spec, CUkernel& kernel) noexcept;
  DeviceStatus read_compiled(CUkernel kernel, CompiledKernel& compiled);
  DeviceStatus read_cluster(CUkernel kernel, CompiledKernel& compiled) noexcept;
  DeviceStatus kernel_attribute(CUkernel kernel, CUfunction_attribute which, std::uint32_t& value) noexcept;

  PrimaryContext& context_;
  std::mutex mutex_;
  Modules modules_;
};

}  // namespace weft::cuda
