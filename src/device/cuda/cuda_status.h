#pragma once

#include "device/device_api.h"

#include <cuda.h>

#include <span>

namespace weft::cuda {

/// What one driver code means at the seam. `device_lost` marks the sticky codes.
struct StatusRule {
  CUresult native = CUDA_SUCCESS;
  StatusCode code = StatusCode::ok;
  const char* detail = nullptr;  ///< Says more than the name of the driver call; null where it would not.
};

/// Every code that has a meaning of its own, in ascending order; any other is `internal`.
[[nodiscard]] std::span<const StatusRule> status_table() noexcept;

/// `call` is the driver's function, a string literal: the detail where the table has none.
[[nodiscard]] DeviceStatus to_status(CUresult result, const char* call) noexcept;

}  // namespace weft::cuda
