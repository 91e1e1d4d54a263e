#pragma once

#include <cstdint>

// What the code of linear_skinny.cu and its specs in linear_skinny.cpp must agree on.

#ifdef __CUDACC__
#define WEFT_ON_BOTH __host__ __device__
#else
#define WEFT_ON_BOTH
#endif

namespace weft::kernels::linear_skinny_tile {

inline constexpr std::uint32_t kThreads = 256;

/// What a block computes of y at a time: one of three sizes, each twice the one before it both ways.
struct Tile {
  std::uint32_t size = 0;  ///< 0 to 2.

  [[nodiscard]] WEFT_ON_BOTH constexpr std::uint32_t rows() const { return 16u << size; }
  [[nodiscard]] WEFT_ON_BOTH constexpr std::uint32_t outs() const { return 8u << size; }
  /// Tiles in a matrix of this size.
  [[nodiscard]] WEFT_ON_BOTH constexpr std::uint64_t count(std::uint64_t all_rows, std::uint64_t all_outs) const {
    return ((all_rows + rows() - 1) / rows()) * ((all_outs + outs() - 1) / outs());
  }
};

/// The smallest tile of which there are so few that the blocks of two kernels, one of them waiting for the other, fit
/// side by side into a large device, which takes two of them a multiprocessor. The largest only pays once its blocks
/// would not fit alone, and half empty never.
[[nodiscard]] WEFT_ON_BOTH constexpr Tile tile_of(std::uint64_t rows, std::uint64_t outs) {
  constexpr std::uint64_t kMultiprocessors = 132;
  if (Tile{0}.count(rows, outs) <= kMultiprocessors) return {0};
  return {rows <= Tile{1}.rows() || Tile{1}.count(rows, outs) <= 2 * kMultiprocessors ? 1u : 2u};
}

/// The results of the warps that share columns of a tile, in 16 x 8 matrices of f32: eight of 2 x 2 in the larger
/// tiles, with the padding of the medium one.
inline constexpr std::uint32_t kSharedBytes = 8 * 4 * (16 * 8 + 16) * 4;

}  // namespace weft::kernels::linear_skinny_tile

#undef WEFT_ON_BOTH
