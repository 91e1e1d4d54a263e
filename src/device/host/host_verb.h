#pragma once

#include "device/host/host_device.h"
#include "device/process_state.h"

#include <exception>
#include <new>
#include <utility>

namespace weft {

template <class Body>
DeviceStatus HostDevice::verb(Body&& body) noexcept {
  // Before the lock: in a child its holder may be gone.
  if (const DeviceStatus status = process_status(); !status.ok()) return status;
  try {
    const std::lock_guard lock(mutex_);
    if (lost_) return lost();
    const DeviceStatus status = std::forward<Body>(body)();
    if (status.code == StatusCode::internal) latch(status.detail);
    return status;
  } catch (const std::bad_alloc&) {
    return {StatusCode::out_of_memory, 0, "the process has no memory left for the host device's records"};
  } catch (const std::exception&) {
    return {StatusCode::internal, 0, "the host device met an unexpected exception"};
  }
}

}  // namespace weft
