#pragma once

#include <weft/export.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// Element types of tensors and regions.
enum class DType : std::uint8_t { u8, i8, i32, u32, i64, f16, bf16, f32, f64 };

/// IEEE 754 binary16 as storage, compared by its bits; weft/cuda.h maps `__half` to it.
struct f16 {
  std::uint16_t bits = 0;
  friend bool operator==(f16, f16) = default;
};

/// bfloat16 as storage, compared by its bits; weft/cuda.h maps `__nv_bfloat16` to it.
struct bf16 {
  std::uint16_t bits = 0;
  friend bool operator==(bf16, bf16) = default;
};

/// Bytes of one element.
[[nodiscard]] WEFT_API std::uint64_t size_of(DType dtype) noexcept;

/// "f32", "u8" and so on.
[[nodiscard]] WEFT_API std::string_view to_string(DType dtype) noexcept;

/// The DType of a C++ element type; only the types listed here have one.
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<std::uint8_t> {
  static constexpr DType value = DType::u8;
};
template <>
struct DTypeOf<std::int8_t> {
  static constexpr DType value = DType::i8;
};
template <>
struct DTypeOf<std::int32_t> {
  static constexpr DType value = DType::i32;
};
template <>
struct DTypeOf<std::uint32_t> {
  static constexpr DType value = DType::u32;
};
template <>
struct DTypeOf<std::int64_t> {
  static constexpr DType value = DType::i64;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::f16;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::f64;
};

/// A type that a tensor can have as its element.
template <class T>
concept Element = requires {
  DTypeOf<T>::value;
};

/// What the dimensions mean. Two descriptors with the same numbers and another tag are different.
enum class Layout : std::uint8_t {
  plain,  ///< No meaning; any rank.
  nchw,   ///< Rank 4: batch, channel, height, width.
  nhwc,   ///< Rank 4: batch, height, width, channel.
};

[[nodiscard]] WEFT_API std::string_view to_string(Layout layout) noexcept;

/// Dimensions in elements, outermost first. An empty shape is a scalar.
using Shape = std::vector<std::uint64_t>;

/// Distances between neighbours of each dimension, in elements.
using Strides = std::vector<std::uint64_t>;

/// Type, shape, strides and layout of a tensor: a plain value, immutable after construction.
///
/// Strides may leave gaps and stand in any order, but must nest: sorted by stride, each dimension steps over the whole
/// extent of those before it, so no two elements share bytes. The stride of a dimension of 1 does not matter, and is
/// kept as that of a contiguous tensor. A dimension of 0 makes the tensor empty, whatever the
/// others are; the strides of a contiguous empty tensor are all 1. Errors: `invalid` for a zero stride, another number
/// of strides than dimensions, strides that overlap, a size beyond 64 bits, or a layout of another rank.
class WEFT_API TensorDesc {
 public:
  // No move: a descriptor that is moved from stays one.
  TensorDesc(const TensorDesc&) = default;
  TensorDesc& operator=(const TensorDesc&) = default;

  /// A contiguous tensor, last dimension innermost.
  TensorDesc(DType dtype, Shape shape, Layout layout = Layout::plain);
  /// A tensor with strides of its own.
  TensorDesc(DType dtype, Shape shape, Strides strides, Layout layout = Layout::plain);

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] const Strides& strides() const noexcept { return strides_; }
  [[nodiscard]] Layout layout() const noexcept { return layout_; }
  /// Number of elements.
  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  /// Bytes from the first element to the end of the last, gaps of strides included; 0 when empty.
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] bool is_empty() const noexcept { return count_ == 0; }
  [[nodiscard]] bool is_contiguous() const noexcept;

  friend bool operator==(const TensorDesc&, const TensorDesc&) = default;

 private:
  DType dtype_;
  Layout layout_;
  Shape shape_;
  Strides strides_;
  std::uint64_t count_ = 0;
  std::uint64_t bytes_ = 0;
};

/// "f32[32,64]", with strides and layout where they are not the usual ones.
[[nodiscard]] WEFT_API std::string to_string(const TensorDesc& desc);

}  // namespace weft
