#pragma once

#include "device/device_api.h"

namespace weft {

/// The arguments are refused, as a driver would.
[[nodiscard]] constexpr DeviceStatus refused(const char* detail) noexcept { return {StatusCode::invalid, 0, detail}; }

/// A rule of the seam is broken: weft's own mistake, found by the debug layer.
[[nodiscard]] constexpr DeviceStatus misuse(const char* detail) noexcept { return {StatusCode::internal, 0, detail}; }

}  // namespace weft
