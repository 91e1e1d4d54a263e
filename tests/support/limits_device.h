#pragma once

#include "device/device_decorator.h"

#include <functional>
#include <memory>
#include <utility>

namespace weft::test {

/// A device that publishes other limits than it has.
class LimitsDevice final : public DeviceDecorator {
 public:
  LimitsDevice(std::shared_ptr<DeviceApi> inner, const std::function<void(DeviceLimits&)>& change)
      : DeviceDecorator(inner), limits_(inner->limits()) {
    change(limits_);
  }
  [[nodiscard]] const DeviceLimits& limits() const noexcept override { return limits_; }

 private:
  DeviceLimits limits_;
};

}  // namespace weft::test
