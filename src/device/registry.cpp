#include "device/registry.h"

#include "device/host/host_device.h"
#include "device/process_state.h"
#include "error_context.h"

#if WEFT_CUDA
#include "device/cuda/cuda_device.h"
#endif

#include <spdlog/fmt/fmt.h>

#include <map>
#include <mutex>
#include <tuple>
#include <utility>

namespace weft {

namespace {

struct ByKindAndOrdinal {
  bool operator()(const Device& a, const Device& b) const noexcept {
    return std::tie(a.kind, a.ordinal) < std::tie(b.kind, b.ordinal);
  }
};

struct Registry {
  struct Entry {
    std::weak_ptr<DeviceApi> open;
    std::shared_ptr<DeviceApi> installed;  ///< By a ScopedDevice.
  };
  std::mutex mutex;
  std::map<Device, Entry, ByKindAndOrdinal> devices;
};

Registry& registry() {
  static Registry instance;
  return instance;
}

std::shared_ptr<DeviceApi> make_device(Device device) {
  if (device.kind == Device::Kind::host) return make_host_device();
#if WEFT_CUDA
  return cuda::make_cuda_device(device.ordinal);
#else
  throw Error(ErrorCode::unsupported, "This build of weft has no CUDA side: it was configured with WEFT_CUDA=OFF.");
#endif
}

}  // namespace

std::shared_ptr<DeviceApi> open_device(Device device) {
  check(process_status(), "be opened");
  const DeviceOpening opening;  // A child that is forked meanwhile finds the lock taken for ever.
  Registry& devices = registry();
  const std::lock_guard lock(devices.mutex);
  Registry::Entry& entry = devices.devices[device];
  if (entry.installed) return entry.installed;
  if (auto open = entry.open.lock()) return open;
  auto opened =
      in_context([&] { return fmt::format("opening {}", to_string(device)); }, [&] { return make_device(device); });
  entry.open = opened;
  return opened;
}

std::optional<Device> first_usable_gpu() {
  check(process_status(), "be looked for");
#if WEFT_CUDA
  if (const auto ordinal = cuda::first_usable_gpu()) return Device::cuda(*ordinal);
#endif
  return {};
}

ScopedDevice::ScopedDevice(Device device, std::shared_ptr<DeviceApi> api) : device_(device) {
  const std::lock_guard lock(registry().mutex);
  previous_ = std::exchange(registry().devices[device].installed, std::move(api));
}

ScopedDevice::~ScopedDevice() {
  const std::lock_guard lock(registry().mutex);
  // A swap: the one taken out goes with this object, after the lock.
  registry().devices[device_].installed.swap(previous_);
}

}  // namespace weft
