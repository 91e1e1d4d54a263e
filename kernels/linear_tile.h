#pragma once

#include <cstdint>

// What the code of linear.cu and its specs in linear.cpp must agree on.

namespace weft::kernels::linear_tile {

inline constexpr std::uint32_t kRows = 8;     ///< Rows of x in a tile, and of y in a block.
inline constexpr std::uint32_t kOuts = 16;    ///< Rows of w in a tile, and columns of y in a block.
inline constexpr std::uint32_t kInner = 128;  ///< Columns of x and w in a tile: layers up to here take one pass.
inline constexpr std::uint32_t kThreads = 128;
/// Distance of rows in shared memory, in floats. Half of the 32 banks apart, so that the eight lanes that a 16-byte
/// read serves at once, four neighbours in each of two rows, meet every bank once.
inline constexpr std::uint32_t kRowStride = kInner + 16;
inline constexpr std::uint32_t kSharedBytes = (kRows + kOuts) * kRowStride * sizeof(float);

}  // namespace weft::kernels::linear_tile
