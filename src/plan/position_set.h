#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft {

/// An ordered set of positions below a fixed size: a bitmap with a bitmap of its non-zero words above it, and so on up
/// to one word. Every operation costs O(log64 size).
class PositionSet {
 public:
  explicit PositionSet(std::size_t size) : size_(size) {
    do {
      size = size / 64 + 1;
      levels_.emplace_back(size, 0);
    } while (size > 1);
  }

  [[nodiscard]] bool contains(std::size_t position) const noexcept {
    return (levels_[0][position / 64] >> (position % 64) & 1) != 0;
  }

  void insert(std::size_t position) noexcept {
    for (auto& level : levels_) {
      level[position / 64] |= std::uint64_t{1} << (position % 64);
      position /= 64;
    }
  }

  void erase(std::size_t position) noexcept {
    for (auto& level : levels_) {
      level[position / 64] &= ~(std::uint64_t{1} << (position % 64));
      if (level[position / 64] != 0) return;
      position /= 64;
    }
  }

  /// The largest member that is not above `position`; there must be one.
  [[nodiscard]] std::size_t at_or_before(std::size_t position) const noexcept {
    std::size_t depth = 0;
    std::uint64_t below = levels_[0][position / 64] & (~std::uint64_t{0} >> (63 - position % 64));
    while (below == 0) {
      position /= 64;
      ++depth;
      below = levels_[depth][position / 64] & ((std::uint64_t{1} << (position % 64)) - 1);
    }
    position = position / 64 * 64 + highest(below);
    while (depth > 0) position = position * 64 + highest(levels_[--depth][position]);
    return position;
  }

  /// The smallest member above `position`, or the size given at the start if there is none.
  [[nodiscard]] std::size_t after(std::size_t position) const noexcept {
    for (std::size_t depth = 0; depth < levels_.size(); ++depth) {
      std::uint64_t above = levels_[depth][position / 64] & (~std::uint64_t{1} << (position % 64));
      if (above != 0) {
        position = position / 64 * 64 + lowest(above);
        while (depth > 0) position = position * 64 + lowest(levels_[--depth][position]);
        return position;
      }
      position /= 64;
    }
    return size_;
  }

 private:
  static std::size_t highest(std::uint64_t word) noexcept { return static_cast<std::size_t>(std::bit_width(word)) - 1; }
  static std::size_t lowest(std::uint64_t word) noexcept { return static_cast<std::size_t>(std::countr_zero(word)); }

  std::vector<std::vector<std::uint64_t>> levels_;
  std::size_t size_;
};

}  // namespace weft
