#pragma once

#include "support/run_kernel.h"
#include <weft/tensor.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

namespace weft::test {

/// What fills guards and poisons outputs: a NaN with a payload, and as an index far outside of every table.
template <class T>
[[nodiscard]] constexpr T poison() {
  static_assert(sizeof(T) == sizeof(std::uint32_t));
  return std::bit_cast<T>(0x7fc0beefu);
}
template <>
constexpr f16 poison<f16>() {
  return {0x7ebe};
}
template <>
constexpr bf16 poison<bf16>() {
  return {0x7fbe};
}

/// An operand between guards. The guards are poison, so what a kernel reads beyond an input spoils its answer, and
/// every guard must come back bit for bit.
template <class T>
class GuardedBuffer {
 public:
  /// `shift` moves the operand that many elements off the alignment of the allocation.
  GuardedBuffer(const std::vector<T>& operand, std::size_t shift)
      : begin_(kGuard + shift), count_(operand.size()), values_(begin_ + count_ + kGuard, poison<T>()) {
    std::copy(operand.begin(), operand.end(), values_.begin() + static_cast<std::ptrdiff_t>(begin_));
  }

  /// An output that no element of must survive.
  static GuardedBuffer poisoned(std::size_t count, std::size_t shift) {
    return {std::vector<T>(count, poison<T>()), shift};
  }

  [[nodiscard]] BufferArgument argument() { return {std::as_writable_bytes(std::span(values_)), begin_ * sizeof(T)}; }
  [[nodiscard]] std::span<const T> operand() const { return std::span(values_).subspan(begin_, count_); }

  [[nodiscard]] bool guards_intact() const {
    return is_poison(std::span(values_).first(begin_)) && is_poison(std::span(values_).last(kGuard));
  }

 private:
  static constexpr std::size_t kGuard = 64;

  static bool is_poison(std::span<const T> values) {
    const T expected = poison<T>();
    return std::all_of(values.begin(), values.end(),
                       [&](const T& value) { return std::memcmp(&value, &expected, sizeof(T)) == 0; });
  }

  std::size_t begin_;
  std::size_t count_;
  std::vector<T> values_;
};

using GuardedFloats = GuardedBuffer<float>;

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
