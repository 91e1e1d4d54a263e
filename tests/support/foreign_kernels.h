#pragma once

#include "support/row_scale.h"
#include <weft/kernel.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

// Kernels as other people's: in an image of their own, with clusters, cooperation, variables and structs with pointers.
// Each has a host reference that gives the same answer.

namespace weft::test {

/// cluster_sums(x, y): y[block] = the sum of x[block] over the blocks of its cluster, read from their shared memory.
/// Compiled for any cluster of blocks in x.
[[nodiscard]] KernelSpec cluster_sums_spec(std::uint32_t cluster);
/// The same, compiled for clusters of two blocks.
[[nodiscard]] KernelSpec pair_sums_spec();

/// grid_sums(x, partial, y): y[block] = the sum of x over all blocks, behind one wait of the whole grid.
[[nodiscard]] KernelSpec grid_sums_spec();

struct Globals {
  float scale = 0;
  float table[3] = {};
};
/// from_globals(y): y[i] = scale * table[i], two variables of the image.
[[nodiscard]] KernelSpec from_globals_spec(const Globals& globals);

/// row_scale(RowScale): y[r, c] = alpha x[r, c].
[[nodiscard]] KernelSpec row_scale_spec();

/// add_words(x, y, amount): y[0] = x[0] + amount, as PTX text of these bytes, which must live until the load.
[[nodiscard]] KernelSpec add_words_spec(std::span<const std::byte> text);
/// The text, without a zero at its end.
[[nodiscard]] std::string_view add_words_ptx();

}  // namespace weft::test
