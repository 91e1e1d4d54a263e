#include "device/cuda/driver.h"

#include <weft/error.h>

#include <cuda_runtime_api.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <mutex>

namespace weft::cuda {
namespace {

// A cudart of one major version runs on every driver of that version, and weft needs what came with 12.8.
constexpr int kOldestDriver = std::max(12080, CUDART_VERSION / 1000 * 1000);

std::string dotted(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

// A failed runtime call stays behind as the thread's last error, where a stranger's code would find it.
cudaError_t taken(cudaError_t error) {
  if (error != cudaSuccess) static_cast<void>(cudaGetLastError());
  return error;
}

DriverPresence find_driver() {
  DriverPresence presence;
  presence.error = taken(cudaDriverGetVersion(&presence.version));
  if (presence.version == 0) return presence;
  const cudaError_t error = taken(cudaGetDeviceCount(&presence.device_count));
  presence.error = error;
  if (error != cudaSuccess) presence.error_text = cudaGetErrorString(error);
  return presence;
}

template <class Function>
void load_entry(Entry<Function>& entry, unsigned int since) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      taken(cudaGetDriverEntryPointByVersion(entry.name, &address, since, cudaEnableLegacyStream, &found));
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || address == nullptr) {
    throw Error(ErrorCode::unsupported,
                fmt::format("The CUDA driver has no {} of CUDA {}, which weft needs (error {}).", entry.name,
                            dotted(static_cast<int>(since)), static_cast<int>(error)));
  }
  entry.function = reinterpret_cast<Function>(address);
}

Driver load() {
  const DriverPresence presence = find_driver();
  if (auto reason = why_unusable(presence)) throw Error(ErrorCode::unsupported, std::move(*reason));

  Driver driver;
  driver.version = static_cast<std::uint32_t>(presence.version);
  driver.device_count = static_cast<std::uint32_t>(presence.device_count);
#define X(symbol, since) load_entry(driver.symbol, since);
  WEFT_DRIVER_ENTRIES(X)
#undef X
  return driver;
}

}  // namespace

std::optional<std::string> why_unusable(const DriverPresence& presence) {
  if (presence.version == 0) {
    return "There is no CUDA driver library (libcuda.so.1) on this machine, so no GPU can be used.";
  }
  if (presence.version < kOldestDriver || presence.error == cudaErrorInsufficientDriver) {
    return fmt::format("The CUDA driver supports CUDA {}, and this build of weft needs CUDA {} or newer.",
                       dotted(presence.version), dotted(kOldestDriver));
  }
  if (presence.error == cudaErrorNoDevice || (presence.error == cudaSuccess && presence.device_count == 0)) {
    return "The CUDA driver finds no GPU on this machine (CUDA_VISIBLE_DEVICES can hide them).";
  }
  if (presence.error != cudaSuccess) {
    return fmt::format("The CUDA driver does not start: {} (error {}).", presence.error_text, presence.error);
  }
  return {};
}

const Driver& load_driver() {
  static std::mutex mutex;
  static std::optional<Driver> loaded;
  const std::lock_guard lock(mutex);
  if (!loaded) loaded = load();
  return *loaded;
}

}  // namespace weft::cuda
