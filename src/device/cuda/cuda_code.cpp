#include "device/cuda/cuda_code.h"

#include "device/cuda/cuda_device_impl.h"
#include "device/cuda/native_handle.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>
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
  for (const auto& [library, kernels] : modules_) {
    static_cast<void>(context_.call(context_.driver().LibraryUnload, library));
  }
}

DeviceStatus CudaCode::load(const CodeImage& image, ModuleHandle& module) {
  if (image.bytes.empty()) return {StatusCode::invalid, 0, "the image is empty"};
  const void* code = image.bytes.data();
  std::string text;
  if (!is_binary(image.bytes)) {
    // The driver reads PTX up to a zero, which text in a span need not have.
    text.assign(reinterpret_cast<const char*>(image.bytes.data()), image.bytes.size());
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
  const auto discard = [&](CUlibrary unkept) { static_cast<void>(context_.call(driver.LibraryUnload, unkept)); };
  std::unique_ptr<std::remove_pointer_t<CUlibrary>, decltype(discard)> library(loaded, discard);
  if (const DeviceStatus status = load_code_now(library.get()); !status.ok()) return status;
  {
    const std::lock_guard lock(mutex_);
    modules_.try_emplace(library.get());
  }
  module = to_handle<ModuleHandle>(library.release());
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
  const auto library = native<CUlibrary>(module);
  // The entry goes first: once unloaded, the driver may give the handle to a library that another thread loads.
  Modules::node_type entry;
  {
    const std::lock_guard lock(mutex_);
    entry = modules_.extract(library);
  }
  const DriverScope scope = context_.enter();
  const DeviceStatus status = context_.call(context_.driver().LibraryUnload, library);
  if (!status.ok()) {
    const std::lock_guard lock(mutex_);
    modules_.insert(std::move(entry));
  }
  return status;
}

DeviceStatus CudaCode::find(ModuleHandle module, const char* symbol, KernelHandle& kernel, CompiledKernel& compiled) {
  const DriverScope scope = context_.enter();
  const Driver& driver = context_.driver();
  const auto library = native<CUlibrary>(module);
  CUkernel found = nullptr;
  if (const DeviceStatus status = context_.call(driver.LibraryGetKernel, &found, library, symbol); !status.ok()) {
    return status;
  }
  CUfunction function = nullptr;  // Only to have the code in place before the first launch.
  if (const DeviceStatus status = context_.call(driver.KernelGetFunction, &function, found); !status.ok()) {
    return status;
  }
  auto record = std::make_unique<CudaKernel>();
  record->kernel = found;
  if (const DeviceStatus status = read_compiled(found, record->compiled); !status.ok()) return status;

  const std::lock_guard lock(mutex_);
  CudaKernel& kept = *modules_[library].try_emplace(found, std::move(record)).first->second;
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

DeviceStatus CudaDevice::load(const CodeImage& image, ModuleHandle& module) noexcept {
  return guarded([&] { return code_.load(image, module); });
}

DeviceStatus CudaDevice::unload(ModuleHandle module) noexcept { return code_.unload(module); }

DeviceStatus CudaDevice::find_kernel(ModuleHandle module, const KernelSpec& spec, KernelHandle& kernel,
                                     CompiledKernel& compiled) noexcept {
  return guarded([&] { return code_.find(module, spec.symbol.c_str(), kernel, compiled); });
}

DeviceStatus CudaDevice::raise_dynamic_shared(KernelHandle kernel, std::uint32_t bytes) noexcept {
  return code_.raise_dynamic_shared(*native<CudaKernel*>(kernel), bytes);
}

}  // namespace weft::cuda
