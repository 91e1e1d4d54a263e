#pragma once

#include <cstdint>

// What the code of mean_pool.cu and its specs in mean_pool.cpp must agree on.

namespace weft::kernels::mean_pool_block {

inline constexpr std::uint32_t kThreads = 512;
inline constexpr std::uint32_t kWarps = kThreads / 32;
inline constexpr std::uint32_t kColumns = 256;  ///< That a block sums at a time.
inline constexpr std::uint32_t kSharedBytes = (kWarps * kColumns + kWarps) * sizeof(float);

}  // namespace weft::kernels::mean_pool_block
