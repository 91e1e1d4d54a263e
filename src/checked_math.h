#pragma once

#include <cstdint>
#include <optional>

namespace weft {

/// a + b, or empty beyond 64 bits.
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_add(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return {};
  return sum;
}

/// a * b, or empty beyond 64 bits.
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_multiply(std::uint64_t a, std::uint64_t b) noexcept {
  std::uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return {};
  return product;
}

/// The smallest multiple of `alignment` (a power of two) that is not below `value`, or empty beyond 64 bits.
[[nodiscard]] constexpr std::optional<std::uint64_t> checked_align_up(std::uint64_t value,
                                                                      std::uint64_t alignment) noexcept {
  const auto raised = checked_add(value, alignment - 1);
  if (!raised) return {};
  return *raised & ~(alignment - 1);
}

}  // namespace weft
