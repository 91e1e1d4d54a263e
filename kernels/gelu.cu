#include "device_code.h"
#include "elementwise_block.h"

#include <cstdint>

// The threads stride over rows x columns, and each follows its column without a division an element.

namespace {

using namespace weft::kernels;
using elementwise_block::kThreads;

template <std::uint32_t Count, class T>
__device__ void apply(const T* x, const T* bias, T* y, std::uint32_t rows, std::uint32_t columns) {
  const std::uint64_t width = columns / Count;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * kThreads;
  const std::uint64_t first = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::uint64_t step = stride % width;
  std::uint64_t column = first % width;
  for (std::uint64_t i = first; i < rows * width; i += stride) {
    float values[Count];
    load(x + i * Count, values);
    load_and_add(bias + column * Count, values);
#pragma unroll
    for (std::uint32_t j = 0; j < Count; ++j) values[j] = gelu_of(values[j]);
    store(y + i * Count, values);
    column += step;
    if (column >= width) column -= width;
  }
}

template <class T>
__device__ void gelu(const T* x, const T* bias, T* y, std::uint32_t rows, std::uint32_t columns) {
  wait_for_dependencies();
  if (columns == 0) return;
  if (columns % kVectorOf<T> == 0 && is_vector_aligned(x) && is_vector_aligned(bias) && is_vector_aligned(y)) {
    apply<kVectorOf<T>>(x, bias, y, rows, columns);
  } else {
    apply<1>(x, bias, y, rows, columns);
  }
}

}  // namespace

#define WEFT_GELU(dtype, T)                                                                           \
  extern "C" __global__ void __launch_bounds__(kThreads)                                              \
      weft_gelu_##dtype(const T* x, const T* bias, T* y, std::uint32_t rows, std::uint32_t columns) { \
    gelu(x, bias, y, rows, columns);                                                                  \
  }

WEFT_GELU(f32, float)
WEFT_GELU(f16, __half)
WEFT_GELU(bf16, __nv_bfloat16)
