#include "device_code.h"
#include "row_block.h"

#include <cstdint>

// A warp a row, so that nothing waits at a barrier. The first columns stay in registers between mean, variance and
// result; what is beyond 1024 is read again, mostly from the L1 cache.

namespace {

using namespace weft::kernels;
using row_block::kRows;
using row_block::kThreads;

// Elements of a row that a lane holds. 512 columns go into a narrow row, whose loads are all in flight together; the
// registers of a wide one, of 1024, do not suffice for that.
constexpr std::uint32_t kNarrow = 16;
constexpr std::uint32_t kWide = 32;

/// The column of a lane's `i`-th vector of `Count` neighbours.
template <std::uint32_t Count>
__device__ std::uint32_t column_of(std::uint32_t i) {
  return (threadIdx.x % kWarpLanes + i * kWarpLanes) * Count;
}

/// The first `Elements` of a lane's share of a row. `source(column, values)` reads `Count` neighbours. Of a narrow row,
/// lanes beyond the end read the start, so that no load stands behind a branch.
template <std::uint32_t Count, std::uint32_t Elements, class Source>
__device__ void hold(std::uint32_t columns, Source source, float (&held)[Elements / Count][Count]) {
#pragma unroll
  for (std::uint32_t i = 0; i < Elements / Count; ++i) {
    const std::uint32_t column = column_of<Count>(i);
    if constexpr (Elements == kNarrow) {
      source(column < columns ? column : 0, held[i]);
    } else {
      if (column < columns) source(column, held[i]);
    }
  }
}

/// A lane's share of a row.
template <std::uint32_t Count, std::uint32_t Elements, class Source>
class Row {
 public:
  __device__ Row(std::uint32_t columns, Source source) : columns_(columns), source_(source) {
    hold<Count, Elements>(columns, source, held_);
  }

  /// Calls `visit(i, column, values)` for all of the lane's vectors.
  template <class Visit>
  __device__ void for_each(Visit visit) const {
#pragma unroll
    for (std::uint32_t i = 0; i < kHeld; ++i) {
      if (column_of<Count>(i) < columns_) visit(i, column_of<Count>(i), held_[i]);
    }
    if constexpr (Elements == kWide) {
      for (std::uint64_t column = column_of<Count>(kHeld); column < columns_; column += kWarpLanes * Count) {
        float values[Count];
        source_(column, values);
        visit(kHeld, column, values);
      }
    }
  }

 private:
  static constexpr std::uint32_t kHeld = Elements / Count;

  std::uint32_t columns_;
  Source source_;
  float held_[kHeld][Count];
};

/// gamma and beta of a lane's columns; those of a narrow row are read with the row.
template <std::uint32_t Count, std::uint32_t Elements, class T>
class Affine {
 public:
  __device__ Affine(std::uint32_t columns, const T* gamma, const T* beta) : gamma_(gamma), beta_(beta) {
    if constexpr (Elements == kNarrow) {
      hold<Count, Elements>(
          columns, [gamma](std::uint32_t at, float(&values)[Count]) { load(gamma + at, values); }, gammas_);
      hold<Count, Elements>(
          columns, [beta](std::uint32_t at, float(&values)[Count]) { load(beta + at, values); }, betas_);
    }
  }

  /// values = values * gamma + beta, of the lane's `i`-th vector.
  __device__ void apply(std::uint32_t i, std::uint64_t column, float (&values)[Count]) const {
    if constexpr (Elements == kNarrow) {
      apply(gammas_[i], betas_[i], values);
    } else {
      float gamma[Count];
      float beta[Count];
      load(gamma_ + column, gamma);
      load(beta_ + column, beta);
      apply(gamma, beta, values);
    }
  }

 private:
  __device__ static void apply(const float (&gamma)[Count], const float (&beta)[Count], float (&values)[Count]) {
#pragma unroll
    for (std::uint32_t i = 0; i < Count; ++i) values[i] = values[i] * gamma[i] + beta[i];
  }

  const T* gamma_;
  const T* beta_;
  float gammas_[Elements / Count][Count];
  float betas_[Elements / Count][Count];
};

/// y = (row - mean) / sqrt(variance + eps) * gamma + beta, with `share` of each column in mean and variance.
template <std::uint32_t Count, std::uint32_t Elements, class T, class Source>
__device__ void normalize(std::uint32_t columns, float share, float eps, Source source, const T* gamma, const T* beta,
                          T* y) {
  const Row<Count, Elements, Source> row(columns, source);
  const Affine<Count, Elements, T> affine(columns, gamma, beta);
  // Two sums each, so that half as many additions wait for one another.
  float sums[2] = {};
  row.for_each([&](std::uint32_t, std::uint64_t, const float(&values)[Count]) {
#pragma unroll
    for (std::uint32_t i = 0; i < Count; ++i) sums[i % 2] += values[i];
  });
  const float mean = sum_of_lanes(sums[0] + sums[1]) * share;

  // From the centred values: the difference of two large sums would lose the digits.
  float squares[2] = {};
  row.for_each([&](std::uint32_t, std::uint64_t, const float(&values)[Count]) {
#pragma unroll
    for (std::uint32_t i = 0; i < Count; ++i) squares[i % 2] += (values[i] - mean) * (values[i] - mean);
  });
  const float factor = rsqrtf(sum_of_lanes(squares[0] + squares[1]) * share + eps);

  row.for_each([&](std::uint32_t i, std::uint64_t column, const float(&values)[Count]) {
    float results[Count];
#pragma unroll
    for (std::uint32_t j = 0; j < Count; ++j) results[j] = (values[j] - mean) * factor;
    affine.apply(i, column, results);
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

template <std::uint32_t Count, std::uint32_t Elements, bool HasResidual, class T>
__device__ void normalize_rows(const Problem<T>& problem) {
  const float share = 1.0f / static_cast<float>(problem.columns);
  wait_for_dependencies();
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
    normalize<Count, Elements>(problem.columns, share, problem.eps, source, problem.gamma, problem.beta,
                               problem.y + begin);
  }
}

template <bool HasResidual, class T>
__device__ void layer_norm(const Problem<T>& problem) {
  const bool vectorized = problem.columns % kVectorOf<T> == 0 && is_vector_aligned(problem.x) &&
                          is_vector_aligned(problem.bias) && is_vector_aligned(problem.residual) &&
                          is_vector_aligned(problem.gamma) && is_vector_aligned(problem.beta) &&
                          is_vector_aligned(problem.y);
  const bool narrow = problem.columns > 0 && problem.columns <= kNarrow * kWarpLanes;
  if (vectorized && narrow) {
    normalize_rows<kVectorOf<T>, kNarrow, HasResidual>(problem);
  } else if (vectorized) {
    normalize_rows<kVectorOf<T>, kWide, HasResidual>(problem);
  } else {
    normalize_rows<1, kWide, HasResidual>(problem);
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
