#include "device/cuda/cuda_code.h"

#include "device/cuda/cuda_device_impl.h"
#include "device/cuda/cuda_status.h"
#include "device/cuda/native_handle.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

namespace weft::cuda {
namespace {

bool is_binary(std::span<const std::byte> image) {
  constexpr std::string_view kElf =
      "\x7f"
      "ELF";
  constexpr std::string_view kFatbin = "\x50\xed\x55\xba";
  const std::string_view start(reinterpret_cast<const char*>(image.data()), std::min<std::size_t>(image.size(), 4));
  return start == kElf || start == kFatbin;
}

}  // namespace

CudaCode::~CudaCode() {
  const DriverScope scope = context_.enter();
  for (const auto& [module, owned] : modules_) {
    if (module->library != nullptr) static_cast<void>(context_.call(context_.driver().LibraryUnload, module->library));
  }
}

DeviceStatus CudaCode::load(const CodeImage& image, ModuleHandle& module) {
  auto loaded = std::make_unique<CudaModule>();
  if (image.native.function == nullptr) {
    if (image.bytes.empty()) return {StatusCode::invalid, 0, "the image is empty"};
    loaded->cubin = read_cubin(image.bytes);
  }
  CudaModule* const key = loaded.get();
  {
    const std::lock_guard lock(mutex_);
    modules_.emplace(key, std::move(loaded));  // First: what is loaded is then never without an owner.
  }
  if (image.native.function == nullptr) {
    if (const DeviceStatus status = load_library(image.bytes, key->library); !status.ok()) {
      const std::lock_guard lock(mutex_);
      modules_.erase(key);
      return status;
    }
  }
  module = to_handle<ModuleHandle>(key);
  return {};
}

DeviceStatus CudaCode::load_library(std::span<const std::byte> image, CUlibrary& library) {
  const void* code = image.data();
  std::string text;
  if (!is_binary(image)) {
    // The driver reads PTX up to a zero, which text in a span need not have.
    text.assign(reinterpret_cast<const char*>(image.data()), image.size());
    code = text.c_str();
  }

  const DriverScope scope = context_.enter();
  const Driver& driver = context_.driver();
  CUlibrary loaded = nullptr;
  if (const DeviceStatus status = context_.call(
          driver.LibraryLoadData, &loaded, code, static_cast<CUjit_option*>(nullptr), static_cast<void**>(nullptr), 0u,
          static_cast<CUlibraryOption*>(nullptr), static_cast<void**>(nullptr), 0u);
      !status.ok()) {
    return status;
  }
  const DeviceStatus status = load_code_now(loaded);
  if (!status.ok()) {
    static_cast<void>(context_.call(driver.LibraryUnload, loaded));
    return status;
  }
  library = loaded;
  return {};
}

// A library is loaded into a context when its first kernel is used. An image without code for this GPU would show only
// then, and loading can wait for running kernels.
DeviceStatus CudaCode::load_code_now(CUlibrary library) noexcept {
  const Driver& driver = context_.driver();
  unsigned int count = 0;
  if (const DeviceStatus status = context_.call(driver.LibraryGetKernelCount, &count, library); !status.ok()) {
    return status;
  }
  // Seen with driver 580: PTX for another architecture loads, and then has no kernels.
  if (count == 0) return {StatusCode::unsupported, 0, "the image has no kernel that this GPU can run"};
  CUkernel first = nullptr;
  if (const DeviceStatus status = context_.call(driver.LibraryEnumerateKernels, &first, 1u, library); !status.ok()) {
    return status;
  }
  CUfunction function = nullptr;
  return context_.call(driver.KernelGetFunction, &function, first);
}

DeviceStatus CudaCode::unload(ModuleHandle module) noexcept {
  Modules::node_type entry;
  {
    const std::lock_guard lock(mutex_);
    entry = modules_.extract(native<CudaModule*>(module));
  }
  if (entry.empty()) return {StatusCode::internal, 0, "the module is not loaded"};
  if (entry.key()->library == nullptr) return {};
  const DriverScope scope = context_.enter();
  const DeviceStatus status = context_.call(context_.driver().LibraryUnload, entry.key()->library);
  if (!status.ok()) {
    const std::lock_guard lock(mutex_);
    modules_.insert(std::move(entry));
  }
  return status;
}

DeviceStatus CudaCode::look_up(const CudaModule& module, const KernelSpec& spec, CUkernel& kernel) noexcept {
  if (module.library != nullptr) {
    return context_.call(context_.driver().LibraryGetKernel, &kernel, module.library, spec.symbol.c_str());
  }
  const NativeKernel& native = spec.image.native;
  if (native.function == nullptr) return {StatusCode::invalid, 0, "the image is empty"};
  int error = 0;
  // The runtime and the driver have one type for it under two names.
  kernel = static_cast<CUkernel>(native.resolve(native.function, error));
  if (kernel != nullptr) return {};
  // Runtime and driver number these errors alike.
  const StatusCode code = to_status(static_cast<CUresult>(error), "").code == StatusCode::unsupported
                              ? StatusCode::unsupported
                              : StatusCode::invalid;
  return {code, error, "the program's CUDA runtime gives no kernel for the function (cudaGetKernel)"};
}

DeviceStatus CudaCode::find(ModuleHandle module, const KernelSpec& spec, KernelHandle& kernel,
                            CompiledKernel& compiled) {
  const DriverScope scope = context_.enter();
  auto* const loaded = native<CudaModule*>(module);
  CUkernel found = nullptr;
  if (const DeviceStatus status = look_up(*loaded, spec, found); !status.ok()) return status;
  CUfunction function = nullptr;  // Only to have the code in place before the first launch.
  if (const DeviceStatus status = context_.call(context_.driver().KernelGetFunction, &function, found); !status.ok()) {
    return status;
  }
  auto record = std::make_unique<CudaKernel>();
  record->kernel = found;
  if (const DeviceStatus status = read_compiled(found, record->compiled); !status.ok()) return status;
  if (const auto told = loaded->cubin.find(spec.symbol); told != loaded->cubin.end()) {
    tell_kinds(record->compiled, told->second);
  }

  const std::lock_guard lock(mutex_);
  CudaKernel& kept = *loaded->kernels.try_emplace(found, std::move(record)).first->second;
  compiled = kept.compiled;
  kernel = to_handle<KernelHandle>(&kept);
  return {};
}

DeviceStatus CudaCode::read_compiled(CUkernel kernel, CompiledKernel& compiled) {
  const Driver& driver = context_.driver();
  for (std::size_t index = 0;; ++index) {
    std::size_t offset = 0;
    std::size_t size = 0;
    const DeviceStatus status = context_.call(driver.KernelGetParamInfo, kernel, index, &offset, &size);
    if (status.code == StatusCode::invalid) break;  // There are no more: nothing tells their number.
    if (!status.ok()) return status;
    compiled.parameters.push_back({static_cast<std::uint32_t>(offset), static_cast<std::uint32_t>(size)});
  }
  for (const auto& [which, value] :
       {std::pair{CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &compiled.max_threads_per_block},
        std::pair{CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &compiled.static_shared_bytes},
        std::pair{CU_FUNC_ATTRIBUTE_BINARY_VERSION, &compiled.binary_version}}) {
    if (const DeviceStatus status = kernel_attribute(kernel, which, *value); !status.ok()) {
      return status;
    }
  }
  return {};
}

DeviceStatus CudaCode::kernel_attribute(CUkernel kernel, CUfunction_attribute which, std::uint32_t& value) noexcept {
  int number = 0;
  const DeviceStatus status =
      context_.call(context_.driver().KernelGetAttribute, &number, which, kernel, context_.device());
  if (status.ok()) value = static_cast<std::uint32_t>(number);
  return status;
}

DeviceStatus CudaCode::raise_dynamic_shared(CudaKernel& kernel, std::uint32_t bytes) noexcept {
  const DriverScope scope = context_.enter();
  // Between the look and the change no other session may raise it further.
  const std::lock_guard lock(mutex_);
  constexpr auto kLimit = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
  std::uint32_t current = 0;
  if (const DeviceStatus status = kernel_attribute(kernel.kernel, kLimit, current); !status.ok()) {
    return status;
  }
  if (bytes <= current) return {};
  return context_.call(context_.driver().KernelSetAttribute, kLimit, static_cast<int>(bytes), kernel.kernel,
                       context_.device());
}

// These take a lock, which a child after fork would find taken for ever: they look first.

DeviceStatus CudaDevice::load(const CodeImage& image, ModuleHandle& module) noexcept {
  if (context_.lost()) return health();
  return guarded([&] { return code_.load(image, module); });
}

DeviceStatus CudaDevice::unload(ModuleHandle module) noexcept {
  return context_.lost() ? health() : code_.unload(module);
}

DeviceStatus CudaDevice::find_kernel(ModuleHandle module, const KernelSpec& spec, KernelHandle& kernel,
                                     CompiledKernel& compiled) noexcept {
  if (context_.lost()) return health();
  return guarded([&] { return code_.find(module, spec, kernel, compiled); });
}

DeviceStatus CudaDevice::raise_dynamic_shared(KernelHandle kernel, std::uint32_t bytes) noexcept {
  return context_.lost() ? health() : code_.raise_dynamic_shared(*native<CudaKernel*>(kernel), bytes);
}

}  // namespace weft::cuda
