#pragma once

#include <cstdint>

// What the kernels that give each row to a warp, and their specs, must agree on.

namespace weft::kernels::row_block {

inline constexpr std::uint32_t kThreads = 128;
inline constexpr std::uint32_t kRows = kThreads / 32;  ///< Of a block, before it strides.

}  // namespace weft::kernels::row_block
