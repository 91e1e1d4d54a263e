#pragma once

#include <cstdint>

namespace weft {

/// Whether two ranges of bytes, each given by its start and its size, share one. Neither passes 2^64.
[[nodiscard]] constexpr bool overlap(std::uint64_t a, std::uint64_t a_bytes, std::uint64_t b,
                                     std::uint64_t b_bytes) noexcept {
  return a < b + b_bytes && b < a + a_bytes;
}

}  // namespace weft
