#pragma once

#include <weft/error.h>
#include <weft/tensor.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The element types that the encoder computes in, chosen when the program runs.

namespace weft::encoder {

[[nodiscard]] constexpr bool is_element(DType dtype) noexcept {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

/// "f32", "f16" or "bf16" as a type. Errors: `invalid` for another name.
[[nodiscard]] DType element_named(std::string_view name);

/// `visit(T{})` with the C++ type of the elements. Errors: `invalid` for another dtype than f32, f16 and bf16.
template <class Visit>
decltype(auto) with_element(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::f32:
      return std::forward<Visit>(visit)(float{});
    case DType::f16:
      return std::forward<Visit>(visit)(f16{});
    case DType::bf16:
      return std::forward<Visit>(visit)(bf16{});
    default:
      throw Error(ErrorCode::invalid,
                  "The encoder computes in f32, f16 and bf16, not in " + std::string(to_string(dtype)) + ".");
  }
}

/// The values as elements of the type, each rounded to the nearest.
[[nodiscard]] std::vector<std::byte> to_bytes(std::span<const float> values, DType dtype);

/// Elements of the type, at any alignment, as f32.
[[nodiscard]] std::vector<float> to_floats(std::span<const std::byte> bytes, DType dtype);

/// Refuses the first element that is none, with the name of what it stands in.
void require_finite(std::span<const float> values, const std::string& name);

}  // namespace weft::encoder
