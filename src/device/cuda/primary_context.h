#pragma once

#include "device/cuda/cuda_status.h"
#include "device/cuda/driver.h"
#include "device/cuda/driver_scope.h"
#include "device/process_state.h"

#include <atomic>
#include <string>

namespace weft::cuda {

/// A GPU's primary context, retained while this lives, and the one way to the driver: every call's result goes through
/// the status table, and the first sticky one latches. From then on no call reaches the driver; nor while the process
/// exits, nor in a child after fork.
class PrimaryContext {
 public:
  PrimaryContext(const Driver& driver, std::uint32_t ordinal);
  PrimaryContext(const PrimaryContext&) = delete;
  PrimaryContext& operator=(const PrimaryContext&) = delete;
  ~PrimaryContext();

  [[nodiscard]] const Driver& driver() const noexcept { return driver_; }
  [[nodiscard]] CUdevice device() const noexcept { return device_; }
  [[nodiscard]] CUcontext native() const noexcept { return context_; }

  [[nodiscard]] bool lost() const noexcept {
    return lost_.load(std::memory_order_relaxed) != 0 || process_state() != ProcessState::running;
  }
  /// ok, or device_lost with the code that latched or the state of the process.
  DeviceStatus health() const noexcept;

  /// For calls that allocate, free, load, build, instantiate, query or synchronize; the others need neither.
  [[nodiscard]] DriverScope enter() const noexcept { return {lost() ? nullptr : &driver_, context_}; }

  template <class Function, class... Arguments>
  DeviceStatus call(const Entry<Function>& entry, Arguments... arguments) noexcept {
    if (lost()) [[unlikely]]
      return health();
    const CUresult result = entry.function(arguments...);
    if (result == CUDA_SUCCESS) [[likely]]
      return {};
    return failed(result, entry.name);
  }

 private:
  DeviceStatus failed(CUresult result, const char* call) noexcept;

  const Driver& driver_;
  const std::string name_;
  CUdevice device_ = 0;
  CUcontext context_ = nullptr;
  std::atomic<int> lost_ = 0;  ///< The sticky code, 0 while healthy.
};

}  // namespace weft::cuda
