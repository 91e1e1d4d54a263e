#pragma once

#include <weft/export.h>

#include <cstdint>
#include <span>
#include <vector>

namespace weft {

/// Allocations in an arena start at multiples of this many bytes.
inline constexpr std::uint64_t kArenaAlignment = 256;

/// Where each allocation of one slot stands in the slot's arena. Sizes and offsets are in bytes.
struct ArenaPlan {
  std::vector<std::uint64_t> offsets;  ///< One for each allocation; that of an empty one holds no byte.
  std::uint64_t requested = 0;         ///< Sum of the sizes asked for.
  std::uint64_t reserved = 0;          ///< Size of the arena, a multiple of kArenaAlignment.

  [[nodiscard]] std::uint64_t padding() const noexcept { return reserved - requested; }
};

/// Places allocations of `sizes` bytes one after the other, in list order and disjoint: scratch keeps its bytes from
/// run to run, so all of it is live at once. Size 0 takes no room. Thread-safe (pure). Errors: `invalid` if the arena
/// would pass 2^64 - 1 bytes. Cost: O(sizes).
[[nodiscard]] WEFT_API ArenaPlan plan_arena(std::span<const std::uint64_t> sizes);

}  // namespace weft
