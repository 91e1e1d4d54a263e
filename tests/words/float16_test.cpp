#include "catch.h"
#include <weft/float16.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace weft::test {
namespace {

/// What a pattern of 16 bits means, by the definition of the type: sign, exponent, fraction.
double value_of(std::uint32_t bits, int fraction_bits, int bias) {
  const int exponents = 1 << (15 - fraction_bits);
  const auto exponent = static_cast<int>(bits >> fraction_bits) & (exponents - 1);
  const double fraction = std::ldexp(static_cast<double>(bits & ((1u << fraction_bits) - 1)), -fraction_bits);
  const double sign = (bits & 0x8000u) != 0 ? -1 : 1;
  if (exponent == exponents - 1) {
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  }
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

template <class T>
constexpr int kFractionBits = 10;
template <>
constexpr int kFractionBits<bf16> = 7;
template <class T>
constexpr int kBias = 15;
template <>
constexpr int kBias<bf16> = 127;

template <class T>
T pattern(std::uint32_t bits) {
  return {static_cast<std::uint16_t>(bits)};
}

template <class T>
std::size_t wrong_values() {
  std::size_t wrong = 0;
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const double expected = value_of(bits, kFractionBits<T>, kBias<T>);
    const float value = to_float(pattern<T>(bits));
    if (std::isnan(expected)) {
      wrong += static_cast<std::size_t>(!std::isnan(value) || !std::isnan(to_float(from_float<T>(value))));
    } else {
      const bool same_sign = std::signbit(value) == std::signbit(expected);
      wrong += static_cast<std::size_t>(value != expected || !same_sign || from_float<T>(value) != pattern<T>(bits));
    }
  }
  return wrong;
}

/// Between each value and the next: what lies halfway, and what lies just beside that.
template <class T>
std::size_t wrong_roundings() {
  std::size_t wrong = 0;
  for (std::uint32_t bits = 0; std::isfinite(to_float(pattern<T>(bits + 1))); ++bits) {
    const float low = to_float(pattern<T>(bits));
    const float high = to_float(pattern<T>(bits + 1));
    const float middle = low + (high - low) / 2;
    const float above = std::nextafter(middle, std::numeric_limits<float>::infinity());
    const float below = std::nextafter(middle, 0.0f);
    const std::uint32_t even = bits % 2 == 0 ? bits : bits + 1;
    wrong += static_cast<std::size_t>(from_float<T>(middle) != pattern<T>(even));
    wrong += static_cast<std::size_t>(from_float<T>(above) != pattern<T>(bits + 1));
    wrong += static_cast<std::size_t>(from_float<T>(below) != pattern<T>(bits));
    wrong += static_cast<std::size_t>(from_float<T>(-middle) != pattern<T>(0x8000u | even));
  }
  return wrong;
}

}  // namespace

TEST_CASE("Every number of 16 bits becomes the float of its value and back", "[words]") {
  CHECK(wrong_values<f16>() == 0);
  CHECK(wrong_values<bf16>() == 0);
}

TEST_CASE("A float becomes the nearest number of 16 bits and of two the even one", "[words]") {
  CHECK(wrong_roundings<f16>() == 0);
  CHECK(wrong_roundings<bf16>() == 0);
}

TEST_CASE("A float beyond the range of 16 bits becomes an infinity", "[words]") {
  CHECK(from_float<f16>(65519.0f) == f16{0x7bff});
  CHECK(from_float<f16>(65520.0f) == f16{0x7c00});
  CHECK(from_float<f16>(-1e30f) == f16{0xfc00});
  CHECK(from_float<bf16>(std::numeric_limits<float>::max()) == bf16{0x7f80});
  CHECK(from_float<bf16>(-std::numeric_limits<float>::infinity()) == bf16{0xff80});
}

}  // namespace weft::test
