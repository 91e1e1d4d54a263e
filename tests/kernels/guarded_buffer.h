#pragma once

#include "support/run_kernel.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace weft::test {

/// An operand between guards. The guards are NaN, so what a kernel reads beyond an input spoils its answer, and every
/// guard must come back bit for bit.
class GuardedBuffer {
 public:
  /// `shift` moves the operand that many floats off the alignment of the allocation.
  GuardedBuffer(std::vector<float> operand, std::size_t shift)
      : begin_(kGuard + shift), count_(operand.size()), values_(begin_ + count_ + kGuard, nan()) {
    std::copy(operand.begin(), operand.end(), values_.begin() + static_cast<std::ptrdiff_t>(begin_));
  }

  /// An output that no element of must survive: NaN throughout.
  static GuardedBuffer poisoned(std::size_t count, std::size_t shift) {
    return {std::vector<float>(count, nan()), shift};
  }

  [[nodiscard]] FloatBuffer argument() { return {&values_, begin_}; }
  [[nodiscard]] std::span<const float> operand() const { return std::span(values_).subspan(begin_, count_); }

  [[nodiscard]] bool guards_intact() const {
    const auto intact = [](float value) { return std::bit_cast<std::uint32_t>(value) == kNanBits; };
    return std::all_of(values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(begin_), intact) &&
           std::all_of(values_.begin() + static_cast<std::ptrdiff_t>(begin_ + count_), values_.end(), intact);
  }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr std::uint32_t kNanBits = 0x7fc0beef;
  static float nan() { return std::bit_cast<float>(kNanBits); }

  std::size_t begin_;
  std::size_t count_;
  std::vector<float> values_;
};

/// Uniform numbers in [-1, 1), the same for a seed everywhere.
class RandomFloats {
 public:
  explicit RandomFloats(std::uint64_t seed) : state_(seed) {}

  [[nodiscard]] std::vector<float> take(std::size_t count) {
    std::vector<float> values(count);
    for (float& value : values) value = next();
    return values;
  }

 private:
  // splitmix64; the top 24 bits fill a float exactly.
  float next() {
    state_ += 0x9e3779b97f4a7c15;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    z ^= z >> 31;
    return static_cast<float>(z >> 40) * 0x1p-23f - 1.0f;
  }

  std::uint64_t state_;
};

}  // namespace weft::test
