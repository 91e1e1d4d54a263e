#pragma once

#include <weft/float16.h>

#include <cstddef>

namespace weft::kernels {

/// y = x w^T, or with a bias y = x w^T + b, on the host: sums in f32, each rounded to T once.
template <class T>
struct LinearProblem {
  const T* x = nullptr;
  const T* w = nullptr;
  const T* b = nullptr;  ///< Null without a bias.
  T* y = nullptr;
  std::size_t rows = 0;
  std::size_t in = 0;
  std::size_t out = 0;

  /// Of the columns [begin, end) of a row of x and of w.
  [[nodiscard]] float dot(std::size_t row, std::size_t column, std::size_t begin, std::size_t end) const {
    const T* left = x + row * in;
    const T* right = w + column * in;
    float sum = 0;
    for (std::size_t i = begin; i < end; ++i) sum += to_float(left[i]) * to_float(right[i]);
    return sum;
  }

  /// Before it is rounded.
  [[nodiscard]] float value(std::size_t row, std::size_t column) const {
    const float sum = dot(row, column, 0, in);
    return b == nullptr ? sum : sum + to_float(b[column]);
  }

  /// Calls `element(row, column, y)` for each element of y.
  template <class Element>
  void for_each(Element&& element) const {
    for (std::size_t row = 0; row < rows; ++row) {
      for (std::size_t column = 0; column < out; ++column) element(row, column, y[row * out + column]);
    }
  }

  void solve() const {
    for_each([&](std::size_t row, std::size_t column, T& result) { result = from_float<T>(value(row, column)); });
  }
};

}  // namespace weft::kernels
