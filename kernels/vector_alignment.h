#pragma once

#include <cstdint>

// For device code alone.

namespace weft::kernels {

/// Whether floats may be read and written there as vectors of four.
__device__ inline bool is_vector_aligned(const float* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(float4) == 0;
}

}  // namespace weft::kernels
