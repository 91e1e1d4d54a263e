#pragma once

#include <cstdint>

// What the code of mean_pool.cu and its specs in mean_pool.cpp must agree on.

namespace weft::kernels::mean_pool_block {

inline constexpr std::uint32_t kThreads = 512;
inline constexpr std::uint32_t kWarps = kThreads / 32;
inline constexpr std::uint32_t kSums = kThreads * 8;  ///< In shared memory: a vector of a thread, of 2-byte elements.
inline constexpr std::uint32_t kSharedBytes = (kSums + kWarps) * sizeof(float);

}  // namespace weft::kernels::mean_pool_block
