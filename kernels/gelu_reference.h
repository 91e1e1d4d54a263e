#pragma once

#include <cmath>

namespace weft::kernels {

/// device_code.h has the same.
[[nodiscard]] inline float gelu_of(float value) {
  return 0.5f * value * (1.0f + std::erf(value * 0.70710678118654752f));
}

}  // namespace weft::kernels
