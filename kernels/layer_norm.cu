#include "device_code.h"
#include "row_block.h"

#include <cstdint>

// A warp a row, so that nothing waits at a barrier. The first 1024 columns stay in registers between mean, variance and
// result; what is beyond is read again, mostly from the L1 cache.

namespace {

using namespace weft::kernels;
using row_block::kRows;
using row_block::kThreads;

constexpr std::uint32_t kHeldElements = 32;  // of a lane

/// This lane's share of a row, `Count` neighbours at a time. `source(column, values)` reads them.
template <std::uint32_t Count, class Source>
class Row {
 public:
  __device__ Row(std::uint32_t columns, Source source) : columns_(columns), source_(source) {
#pragma unroll
    for (std::uint32_t i = 0; i < kHeld; ++i) {
      if (held_column(i) < columns_) source_(held_column(i), held_[i]);
    }
  }

  /// Calls `visit(column, values)` for all of the lane's columns.
  template <class Visit>
  __device__ void for_each(Visit visit) const {
#pragma unroll
    for (std::uint32_t i = 0; i < kHeld; ++i) {
      if (held_column(i) < columns_) visit(held_column(i), held_[i]);
    }
    for (std::uint64_t column = held_column(kHeld); column < columns_; column += kWarpLanes * Count) {
      float values[Count];
      source_(column, values);
      visit(column, values);
    }
  }

 private:
  static constexpr std::uint32_t kHeld = kHeldElements / Count;

  __device__ static std::uint32_t held_column(std::uint32_t i) {
    return (threadIdx.x % kWarpLanes + i * kWarpLanes) * Count;
  }

  std::uint32_t columns_;
  Source source_;
  float held_[kHeld][Count];
};

/// y = (row - mean) / sqrt(variance + eps) * gamma + beta.
template <std::uint32_t Count, class T, class Source>
__device__ void normalize(std::uint32_t columns, float eps, Source source, const T* gamma, const T* beta, T* y) {
  const Row<Count, Source> row(columns, source);
  float sum = 0;
  row.for_each([&](std::uint64_t, const float(&values)[Count]) {
#pragma unroll
    for (std::uint32_t i = 0; i < Count; ++i) sum += values[i];
  });
  const float mean = sum_of_lanes(sum) / static_cast<float>(columns);

  // From the centred values: the difference of two large sums would lose the digits.
  float squares = 0;
  row.for_each([&](std::uint64_t, const float(&values)[Count]) {
#pragma unroll
    for (std::uint32_t i = 0; i < Count; ++i) squares += (values[i] - mean) * (values[i] - mean);
  });
  const float factor = 1.0f / sqrtf(sum_of_lanes(squares) / static_cast<float>(columns) + eps);

  row.for_each([&](std::uint64_t column, const float(&values)[Count]) {
    float scales[Count];
    float shifts[Count];
    float results[Count];
    load(gamma + column, scales);
    load(beta + column, shifts);
#pragma unroll
    for (std::uint32_t i = 0; i < Count; ++i) results[i] = (values[i] - mean) * factor * scales[i] + shifts[i];
    store(y + column, results);
  });
}

template <class T>
struct Problem {
  const T* x;
  const T* bias;      // null without a residual
  const T* residual;  // as bias
  const T* gamma;
  const T* beta;
  T* y;
  std::uint32_t rows;
  std::uint32_t columns;
  float eps;
};

template <std::uint32_t Count, bool HasResidual, class T>
__device__ void normalize_rows(const Problem<T>& problem) {
  for (std::uint64_t row = std::uint64_t{blockIdx.x} * kRows + threadIdx.x / kWarpLanes; row < problem.rows;
       row += std::uint64_t{gridDim.x} * kRows) {
    const std::uint64_t begin = row * problem.columns;
    const auto source = [&problem, begin](std::uint64_t column, float(&values)[Count]) {
      load(problem.x + begin + column, values);
      if constexpr (HasResidual) {
        load_and_add(problem.bias + column, values);
        load_and_add(problem.residual + begin + column, values);
      }
    };
    normalize<Count>(problem.columns, problem.eps, source, problem.gamma, problem.beta, problem.y + begin);
  }
}

template <bool HasResidual, class T>
__device__ void layer_norm(const Problem<T>& problem) {
  wait_for_dependencies();
  const bool vectorized = problem.columns % kVectorOf<T> == 0 && is_vector_aligned(problem.x) &&
                          is_vector_aligned(problem.bias) && is_vector_aligned(problem.residual) &&
                          is_vector_aligned(problem.gamma) && is_vector_aligned(problem.beta) &&
                          is_vector_aligned(problem.y);
  if (vectorized) {
    normalize_rows<kVectorOf<T>, HasResidual>(problem);
  } else {
    normalize_rows<1, HasResidual>(problem);
  }
}

}  // namespace

#define WEFT_LAYER_NORM(dtype, T)                                                                                   \
  extern "C" __global__ void __launch_bounds__(kThreads) weft_layer_norm_##dtype(                                   \
      const T* x, const T* gamma, const T* beta, T* y, std::uint32_t rows, std::uint32_t columns, float eps) {      \
    layer_norm<false, T>({x, nullptr, nullptr, gamma, beta, y, rows, columns, eps});                                \
  }                                                                                                                 \
  extern "C" __global__ void __launch_bounds__(kThreads)                                                            \
      weft_layer_norm_residual_##dtype(const T* x, const T* bias, const T* residual, const T* gamma, const T* beta, \
                                       T* y, std::uint32_t rows, std::uint32_t columns, float eps) {                \
    layer_norm<true, T>({x, bias, residual, gamma, beta, y, rows, columns, eps});                                   \
  }

WEFT_LAYER_NORM(f32, float)
WEFT_LAYER_NORM(f16, __half)
WEFT_LAYER_NORM(bf16, __nv_bfloat16)
