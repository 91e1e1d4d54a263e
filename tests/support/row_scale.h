#pragma once

#include <cstdint>

namespace weft::test {

/// The arguments of a kernel in the way of CUTLASS: one struct with pointers, strides and scalars.
struct RowScale {
  std::int32_t rows = 0;
  std::int32_t columns = 0;
  const float* x = nullptr;
  std::int64_t x_stride = 0;
  float* y = nullptr;
  std::int64_t y_stride = 0;
  float alpha = 0;
};

}  // namespace weft::test
