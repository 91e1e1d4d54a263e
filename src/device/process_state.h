#pragma once

#include "device/device_api.h"

#include <atomic>

namespace weft {

/// What the process still is to the devices that it opened.
enum class ProcessState : std::uint8_t {
  running,
  exiting,  ///< exit() has begun: drivers and other threads' data are being taken down.
  forked,   ///< A child of a process that had opened a device: no driver and no worker thread came along.
};

namespace detail {
inline constinit std::atomic<ProcessState> process_state{ProcessState::running};
}  // namespace detail

/// One load; takes no lock. In any other state than `running` no device may be used, and locks may be held by threads
/// that are gone.
[[nodiscard]] inline ProcessState process_state() noexcept {
  return detail::process_state.load(std::memory_order_relaxed);
}

/// ok while running, else device_lost with the reason. Takes no lock.
[[nodiscard]] DeviceStatus process_status() noexcept;

/// The opening of a device. From its start a child after fork() is `forked`: for good once it has succeeded, else until
/// its end, so that a process that opened nothing has children that may. From its success exit() means `exiting`.
class DeviceOpening {
 public:
  /// Throws `out_of_memory` where the process cannot register its handlers.
  DeviceOpening();
  DeviceOpening(const DeviceOpening&) = delete;
  DeviceOpening& operator=(const DeviceOpening&) = delete;
  ~DeviceOpening();

  /// After the driver has started: handlers at exit run in reverse order, and this one must come before the driver's.
  void succeed();

 private:
  bool succeeded_ = false;
};

}  // namespace weft
