#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace weft::bench {

/// `(float* to, const float* from, uint32_t floats)`: one float4 a thread.
[[nodiscard]] const void* raw_copy_in() noexcept;

/// `(float* to, const float* from, uint32_t floats, uint64_t* counter, uint64_t* flag)`: one block; then stores
/// ++*counter to the flag in pinned memory, where the host reads it with acquire.
[[nodiscard]] const void* raw_copy_out_and_flag() noexcept;

}  // namespace weft::bench
