#pragma once

#include "device/device_api.h"
#include <weft/device.h>

#include <memory>
#include <optional>

namespace weft {

/// Opens a device, or hands out the one that is open: all contexts and sessions of a device share it and its memory
/// pool while any of them lives. Thread-safe. Errors: `unsupported` with the reason (no driver library, no device,
/// driver too old, no such ordinal); a failed start is not remembered. `device_lost` once the process exits, and in a
/// child that was forked after a device was opened.
[[nodiscard]] std::shared_ptr<DeviceApi> open_device(Device device);

/// The first GPU that weft runs on, without opening it; empty when there is none, no driver, or a build without CUDA.
/// Thread-safe. Errors: `device_lost` as open_device.
[[nodiscard]] std::optional<Device> first_usable_gpu();

/// Puts another DeviceApi under a device's name while it lives, so that tests run the public API over decorated, held
/// or seeded devices. Devices already open are not affected.
class ScopedDevice {
 public:
  ScopedDevice(Device device, std::shared_ptr<DeviceApi> api);
  ScopedDevice(const ScopedDevice&) = delete;
  ScopedDevice& operator=(const ScopedDevice&) = delete;
  ~ScopedDevice();

 private:
  Device device_;
  std::shared_ptr<DeviceApi> previous_;
};

}  // namespace weft
