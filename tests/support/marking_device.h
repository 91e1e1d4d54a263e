#pragma once

#include "device/device_decorator.h"
#include "support/call_count.h"

namespace weft::test {

/// Marks the calls of a request as the device's.
class MarkingDevice final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  DeviceStatus launch(ExecutableHandle executable, StreamHandle stream) noexcept override {
    return marked([&] { return DeviceDecorator::launch(executable, stream); });
  }
  DeviceStatus set_executable_node(ExecutableHandle executable, NodeHandle handle, const Node& node) noexcept override {
    return marked([&] { return DeviceDecorator::set_executable_node(executable, handle, node); });
  }

 private:
  template <class Call>
  static DeviceStatus marked(const Call& call) noexcept {
    call_count.in_device_call = true;
    const DeviceStatus status = call();
    call_count.in_device_call = false;
    return status;
  }
};

}  // namespace weft::test
