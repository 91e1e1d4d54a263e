#include "checked_math.h"
#include "refusal.h"
#include <weft/error.h>
#include <weft/tensor.h>

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace weft {

namespace {

std::string describe(DType dtype, const Shape& shape) {
  return fmt::format("{}[{}]", to_string(dtype), fmt::join(shape, ","));
}

bool is_empty_shape(const Shape& shape) { return std::ranges::find(shape, 0u) != shape.end(); }

Strides contiguous_strides(DType dtype, const Shape& shape) {
  Strides strides(shape.size(), 1);
  if (is_empty_shape(shape)) return strides;
  std::uint64_t step = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    strides[i] = step;
    const auto next = checked_multiply(step, shape[i]);
    if (!next) refuse(fmt::format("The tensor {} has 2^64 elements or more.", describe(dtype, shape)));
    step = *next;
  }
  return strides;
}

std::uint64_t required_rank(Layout layout) { return layout == Layout::plain ? 0 : 4; }

}  // namespace

std::uint64_t size_of(DType dtype) noexcept {
  switch (dtype) {
    case DType::u8:
    case DType::i8:
      return 1;
    case DType::f16:
    case DType::bf16:
      return 2;
    case DType::i32:
    case DType::u32:
    case DType::f32:
      return 4;
    case DType::i64:
    case DType::f64:
      return 8;
  }
  return 0;
}

std::string_view to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::u8:
      return "u8";
    case DType::i8:
      return "i8";
    case DType::i32:
      return "i32";
    case DType::u32:
      return "u32";
    case DType::i64:
      return "i64";
    case DType::f16:
      return "f16";
    case DType::bf16:
      return "bf16";
    case DType::f32:
      return "f32";
    case DType::f64:
      return "f64";
  }
  return "unknown";
}

std::string_view to_string(Layout layout) noexcept {
  switch (layout) {
    case Layout::plain:
      return "plain";
    case Layout::nchw:
      return "nchw";
    case Layout::nhwc:
      return "nhwc";
  }
  return "unknown";
}

TensorDesc::TensorDesc(DType dtype, Shape shape, Layout layout)
    : TensorDesc(dtype, shape, contiguous_strides(dtype, shape), layout) {}

TensorDesc::TensorDesc(DType dtype, Shape shape, Strides strides, Layout layout)
    : dtype_(dtype), layout_(layout), shape_(std::move(shape)), strides_(std::move(strides)) {
  require_enumerator("element type of a tensor", dtype_, DType::f64);
  require_enumerator("layout of a tensor", layout_, Layout::nhwc);
  const std::string name = describe(dtype_, shape_);
  if (strides_.size() != shape_.size()) {
    refuse(fmt::format("The tensor {} has {} dimensions and {} strides.", name, shape_.size(), strides_.size()));
  }
  if (const auto rank = required_rank(layout_); rank != 0 && shape_.size() != rank) {
    refuse(fmt::format("The layout {} needs {} dimensions; the tensor {} has {}.", to_string(layout_), rank, name,
                       shape_.size()));
  }
  if (const auto zero = std::ranges::find(strides_, 0u); zero != strides_.end()) {
    refuse(fmt::format("The stride of dimension {} of the tensor {} is zero.", zero - strides_.begin(), name));
  }
  if (is_empty_shape(shape_)) return;
  // A dimension of 1 is never stepped over: whatever its stride, the tensor is the same.
  for (std::size_t i = shape_.size(); i-- > 0;) {
    if (shape_[i] != 1) continue;
    const bool is_last = i + 1 == shape_.size();
    strides_[i] = is_last ? 1 : checked_multiply(shape_[i + 1], strides_[i + 1]).value_or(strides_[i]);
  }

  // Sorted by stride, each dimension must step over everything inside it. `extent` is what the dimensions so far span.
  std::vector<std::size_t> order(shape_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(strides_[i], shape_[i]); });
  std::uint64_t extent = 1;
  std::uint64_t count = 1;
  for (const std::size_t i : order) {
    if (shape_[i] == 1) continue;
    if (strides_[i] < extent) {
      refuse(
          fmt::format("The strides [{}] of the tensor {} overlap: dimension {} steps by {} elements, and the "
                      "dimensions inside it span {}.",
                      fmt::join(strides_, ","), name, i, strides_[i], extent));
    }
    const auto span = checked_multiply(strides_[i], shape_[i] - 1);
    const auto next = span ? checked_add(*span, extent) : span;
    if (!next)
      refuse(
          fmt::format("The tensor {} with strides [{}] spans 2^64 elements or more.", name, fmt::join(strides_, ",")));
    extent = *next;
    count *= shape_[i];  // No more than `extent`, since no two elements share a place.
  }
  const auto bytes = checked_multiply(extent, size_of(dtype_));
  if (!bytes) refuse(fmt::format("The tensor {} spans {} elements: 2^64 bytes or more.", name, extent));
  count_ = count;
  bytes_ = *bytes;
}

bool TensorDesc::is_contiguous() const noexcept {
  std::uint64_t step = 1;
  for (std::size_t i = shape_.size(); i-- > 0;) {
    if (shape_[i] != 1 && count_ != 0 && strides_[i] != step) return false;
    step *= shape_[i];
  }
  return true;
}

std::string to_string(const TensorDesc& desc) {
  std::string text = describe(desc.dtype(), desc.shape());
  if (!desc.is_contiguous()) text += fmt::format(" strides [{}]", fmt::join(desc.strides(), ","));
  if (desc.layout() != Layout::plain) text += fmt::format(" {}", to_string(desc.layout()));
  return text;
}

}  // namespace weft
