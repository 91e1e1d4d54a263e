#pragma once

#include "catch.h"
#include "kernels/guarded_buffer.h"
#include <weft/float16.h>
#include <weft/tensor.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>
#include <vector>

// What the tests of the encoder's kernels share: they run on each element type, with operands as that type stores them,
// against float64.

namespace weft::test {

/// The largest relative norm of an error that a kernel may make on T.
template <class T>
[[nodiscard]] constexpr double allowed_error() {
  if constexpr (std::is_same_v<T, float>) return 1e-6;
  return std::is_same_v<T, f16> ? 2e-3 : 1e-2;
}

template <class... T, class Body>
void for_each_of(Body& body) {
  const auto run = [&]<class U>() {
    INFO("dtype " << to_string(DTypeOf<U>::value));
    body.template operator()<U>();
  };
  (run.template operator()<T>(), ...);
}

/// Calls `body.operator()<T>()` for each.
template <class Body>
void for_each_float(Body&& body) {
  for_each_of<float, f16, bf16>(body);
}

/// The same for the types that tensor cores multiply.
template <class Body>
void for_each_half(Body&& body) {
  for_each_of<f16, bf16>(body);
}

/// `count` uniform numbers in [-range, range), rounded to T.
template <class T>
[[nodiscard]] std::vector<T> random_elements(RandomFloats& random, std::size_t count, float range = 1) {
  std::vector<T> elements;
  elements.reserve(count);
  for (const float value : random.take(count)) elements.push_back(from_float<T>(value * range));
  return elements;
}

/// `count` integers from 0 to `limit` inclusive.
[[nodiscard]] inline std::vector<std::int32_t> random_integers(RandomFloats& random, std::size_t count,
                                                               std::int32_t limit) {
  std::vector<std::int32_t> integers;
  for (const float value : random.take(count)) {
    integers.push_back(static_cast<std::int32_t>((value + 1) / 2 * static_cast<float>(limit + 1)));
  }
  return integers;
}

template <class T>
[[nodiscard]] T quiet_nan() {
  return from_float<T>(std::numeric_limits<float>::quiet_NaN());
}

/// The norm of the error over that of the exact result; NaN where either has one, so that no bound holds. An exact
/// result of 0 throughout must be met.
template <class T>
[[nodiscard]] double relative_error(std::span<const T> result, const std::vector<double>& exact) {
  REQUIRE(result.size() == exact.size());
  double squared_error = 0;
  double squared_norm = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    squared_error += std::pow(to_float(result[i]) - exact[i], 2);
    squared_norm += exact[i] * exact[i];
  }
  return squared_norm == 0 ? std::sqrt(squared_error) : std::sqrt(squared_error / squared_norm);
}

}  // namespace weft::test
