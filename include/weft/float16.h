#pragma once

#include <weft/tensor.h>

#include <bit>
#include <cstdint>

// Conversions between f32 and the 2-byte floating-point types, for hosts without either.

namespace weft {

/// The value as f32; a 2-byte one is exact. A NaN stays one.
[[nodiscard]] constexpr float to_float(float value) noexcept { return value; }

[[nodiscard]] constexpr float to_float(bf16 value) noexcept {
  return std::bit_cast<float>(std::uint32_t{value.bits} << 16);
}

[[nodiscard]] constexpr float to_float(f16 value) noexcept {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = value.bits & 0x7fffu;
  // The exponent moves from a bias of 15 to one of 127.
  if (magnitude >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000u | magnitude << 13);
  if (magnitude >= 0x0400) return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
  const float subnormal = static_cast<float>(magnitude) * 0x1p-24f;
  return sign != 0 ? -subnormal : subnormal;
}

/// The nearest T, of two equally near ones the even one. Beyond the range of T that is an infinity; a NaN stays one.
template <class T>
[[nodiscard]] constexpr T from_float(float value) noexcept;

template <>
[[nodiscard]] constexpr float from_float<float>(float value) noexcept {
  return value;
}

template <>
[[nodiscard]] constexpr bf16 from_float<bf16>(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>(bits >> 16 | 0x0040u)};  // a quiet NaN
  return {static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}

template <>
[[nodiscard]] constexpr f16 from_float<f16>(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const auto with_sign = [sign](std::uint32_t rounded) { return f16{static_cast<std::uint16_t>(sign | rounded)}; };
  if (magnitude > 0x7f800000u) return with_sign(0x7e00u);
  if (magnitude >= 0x47800000u) return with_sign(0x7c00u);  // 2^16
  if (magnitude < 0x38800000u) {                            // 2^-14: a subnormal, or what rounds to the first normal
    // Adding 0.5 leaves the sum's last bit at 2^-24, that of subnormals, and rounds to it.
    const auto sum = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f);
    return with_sign(sum - std::bit_cast<std::uint32_t>(0.5f));
  }
  // A carry out of the fraction steps to the next exponent, at last to infinity.
  return with_sign((magnitude - (112u << 23) + 0x0fffu + (magnitude >> 13 & 1u)) >> 13);
}

}  // namespace weft
