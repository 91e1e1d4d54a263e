#include "device/cuda/cuda_code.h"

#include "device/cuda/cuda_device_impl.h"
#include "device/cuda/cuda_status.h"
#include "device/cuda/native_handle.h"
#include "device/cuda/node_params.h"

#include <algorithm>
#include <array>
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

constexpr std::size_t kLogBytes = 16 << 10;

std::uint64_t volume(const Dim3& dim) noexcept { return std::uint64_t{dim.x} * dim.y * dim.z; }

}  // namespace

CudaCode::~CudaCode() {
  const DriverScope scope = context_.enter();
  for (const auto& [module, owned] : modules_) {
    if (module->library != nullptr) static_cast<void>(context_.call(context_.driver().LibraryUnload, module->library));
  }
}

DeviceStatus CudaCode::load(const CodeImage& image, ModuleHandle& module, std::string* log) {
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
    if (const DeviceStatus status = load_library(image.bytes, *key); !status.ok()) {
      if (log != nullptr && !key->log.empty()) log->assign(key->log.data());
      const std::lock_guard lock(mutex_);
      modules_.erase(key);
      return status;
    }
  }
  module = to_handle<ModuleHandle>(key);
  return {};
}

DeviceStatus CudaCode::load_library(std::span<const std::byte> image, CudaModule& module) {
  const void* code = image.data();
  std::string text;
  std::array<CUjit_option, 2> options{CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  std::array<void*, 2> values{};
  unsigned int count = 0;
  if (!is_binary(image)) {
    module.log.resize(kLogBytes);
    values = {module.log.data(), reinterpret_cast<void*>(kLogBytes - 1)};  // The last byte stays a zero.
    count = static_cast<unsigned int>(options.size());
    // The driver reads PTX up to a zero, which text in a span need not have.
    text.assign(reinterpret_cast<const char*>(image.data()), image.size());
    code = text.c_str();
  }

  const DriverScope scope = context_.enter();
  const Driver& driver = context_.driver();
  CUlibrary loaded = nullptr;
  if (const DeviceStatus status =
          context_.call(driver.LibraryLoadData, &loaded, code, options.data(), values.data(), count,
                        static_cast<CUlibraryOption*>(nullptr), static_cast<void**>(nullptr), 0u);
      !status.ok()) {
    return status;
  }
  const DeviceStatus status = load_code_now(loaded);
  if (!status.ok()) {
    static_cast<void>(context_.call(driver.LibraryUnload, loaded));
    return status;
  }
  module.library = loaded;
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
  if (volume(spec.cluster) > kMaxPortableCluster) {
    if (const DeviceStatus status =
            context_.call(context_.driver().KernelSetAttribute, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1,
                          found, context_.device());
        !status.ok()) {
      return status;
    }
  }
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
  std::uint32_t ptx_version = 0;
  for (const auto& [which, value] :
       {std::pair{CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, &compiled.max_threads_per_block},
        std::pair{CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, &compiled.static_shared_bytes},
        std::pair{CU_FUNC_ATTRIBUTE_BINARY_VERSION, &compiled.binary_version},
        std::pair{CU_FUNC_ATTRIBUTE_PTX_VERSION, &ptx_version}}) {
    if (const DeviceStatus status = kernel_attribute(kernel, which, *value); !status.ok()) {
      return status;
    }
  }
  // PTX of an older architecture has none of what newer ones can do, whatever the driver makes of it.
  compiled.binary_version = std::min(compiled.binary_version, ptx_version);
  return read_cluster(kernel, compiled);
}

DeviceStatus CudaCode::read_cluster(CUkernel kernel, CompiledKernel& compiled) noexcept {
  std::uint32_t needed = 0;
  Dim3 cluster{0, 0, 0};
  for (const auto& [which, value] : {std::pair{CU_FUNC_ATTRIBUTE_CLUSTER_SIZE_MUST_BE_SET, &needed},
                                     std::pair{CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_WIDTH, &cluster.x},
                                     std::pair{CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_HEIGHT, &cluster.y},
                                     std::pair{CU_FUNC_ATTRIBUTE_REQUIRED_CLUSTER_DEPTH, &cluster.z}}) {
    if (const DeviceStatus status = kernel_attribute(kernel, which, *value); !status.ok()) return status;
  }
  compiled.needs_cluster = needed != 0;
  if (cluster.x != 0) compiled.cluster = {cluster.x, std::max(cluster.y, 1u), std::max(cluster.z, 1u)};
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

DeviceStatus CudaCode::find_global(ModuleHandle module, const std::string& name, GlobalVariable& variable) noexcept {
  const auto* const loaded = native<const CudaModule*>(module);
  if (loaded->library == nullptr) return {StatusCode::invalid, 0, "the program's own code is no image"};
  CUdeviceptr address = 0;
  std::size_t bytes = 0;
  const DriverScope scope = context_.enter();
  const DeviceStatus status =
      context_.call(context_.driver().LibraryGetGlobal, &address, &bytes, loaded->library, name.c_str());
  if (status.ok()) variable = {address, bytes};
  return status;
}

DeviceStatus CudaCode::max_resident_blocks(const KernelNode& launch, std::uint64_t& blocks) noexcept {
  CudaKernel& kernel = *native<CudaKernel*>(launch.kernel);
  // The answer is 0 for more shared memory than the kernel is allowed.
  if (const DeviceStatus status = raise_dynamic_shared(kernel, launch.dynamic_shared_bytes); !status.ok()) {
    return status;
  }
  const DriverScope scope = context_.enter();
  const Driver& driver = context_.driver();
  CUfunction function = nullptr;
  if (const DeviceStatus status = context_.call(driver.KernelGetFunction, &function, kernel.kernel); !status.ok()) {
    return status;
  }
  int count = 0;
  if (launch.cluster == Dim3{}) {
    int multiprocessors = 0;
    DeviceStatus status = context_.call(driver.DeviceGetAttribute, &multiprocessors,
                                        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, context_.device());
    if (status.ok()) {
      status = context_.call(driver.OccupancyMaxActiveBlocksPerMultiprocessor, &count, function,
                             static_cast<int>(volume(launch.block)), std::size_t{launch.dynamic_shared_bytes});
    }
    if (status.ok()) blocks = static_cast<std::uint64_t>(count) * static_cast<std::uint64_t>(multiprocessors);
    return status;
  }
  CUlaunchAttribute cluster = cluster_attribute(launch.cluster);
  CUlaunchConfig config{};
  config.gridDimX = launch.grid.x;
  config.gridDimY = launch.grid.y;
  config.gridDimZ = launch.grid.z;
  config.blockDimX = launch.block.x;
  config.blockDimY = launch.block.y;
  config.blockDimZ = launch.block.z;
  config.sharedMemBytes = launch.dynamic_shared_bytes;
  config.attrs = &cluster;
  config.numAttrs = kernel.compiled.cluster ? 0 : 1;  // Code that is compiled for a cluster brings it along.
  const DeviceStatus status =
      context_.call(driver.OccupancyMaxActiveClusters, &count, function, static_cast<const CUlaunchConfig*>(&config));
  if (status.ok()) blocks = static_cast<std::uint64_t>(count) * volume(launch.cluster);
  return status;
}

// These take a lock, which a child after fork would find taken for ever: they look first.

DeviceStatus CudaDevice::load(const CodeImage& image, ModuleHandle& module, std::string* log) noexcept {
  if (context_.lost()) return health();
  return guarded([&] { return code_.load(image, module, log); });
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

DeviceStatus CudaDevice::max_resident_blocks(const KernelNode& launch, std::uint64_t& blocks) noexcept {
  return context_.lost() ? health() : code_.max_resident_blocks(launch, blocks);
}

DeviceStatus CudaDevice::find_global(ModuleHandle module, const std::string& name, GlobalVariable& variable) noexcept {
  return code_.find_global(module, name, variable);
}

}  // namespace weft::cuda
