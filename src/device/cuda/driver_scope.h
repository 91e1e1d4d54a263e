#pragma once

#include "device/cuda/driver.h"

namespace weft::cuda {

/// Makes a context current and this thread's capture mode relaxed, and puts both back.
///
/// While another part of the process captures a stream in global mode, calls that allocate, free, load, instantiate,
/// query or synchronize are refused and break that capture, unless the calling thread is in relaxed mode.
class DriverScope {
 public:
  /// Does nothing without a driver.
  DriverScope(const Driver* driver, CUcontext context) noexcept;
  DriverScope(const DriverScope&) = delete;
  DriverScope& operator=(const DriverScope&) = delete;
  ~DriverScope();

 private:
  const Driver* driver_;
  CUcontext previous_ = nullptr;
  CUstreamCaptureMode previous_mode_ = CU_STREAM_CAPTURE_MODE_RELAXED;
  bool mode_changed_ = false;
  bool context_changed_ = false;
};

}  // namespace weft::cuda
