#include "device_code.h"
#include "mean_pool_block.h"

#include <cstdint>

// A block a sequence: its warps share the tokens out, each lane sums the columns of its own, and the sums of all warps
// meet in shared memory. Every sum has a fixed order.

namespace {

using namespace weft::kernels;
using namespace mean_pool_block;

static_assert(kColumns <= kThreads, "A thread adds the sums of one column.");

constexpr float kSmallestNorm = 1e-12f;

struct Shared {
  alignas(16) float sums[kWarps][kColumns];
  float squares[kWarps];
};
static_assert(sizeof(Shared) == kSharedBytes);

/// This warp's sums of columns [first, first + kColumns) over its share of the tokens.
template <std::uint32_t Count, class T>
__device__ void sum_tokens(const T* x, std::uint32_t tokens, std::uint32_t columns, std::uint64_t first,
                           float (&sums)[kColumns]) {
  constexpr std::uint32_t kStep = kWarpLanes * Count;
  const std::uint32_t lane = threadIdx.x % kWarpLanes;
  for (std::uint32_t offset = lane * Count; offset < kColumns; offset += kStep) {
    float values[Count] = {};
    if (first + offset < columns) {
#pragma unroll 8
      for (std::uint32_t token = threadIdx.x / kWarpLanes; token < tokens; token += kWarps) {
        load_and_add(x + std::uint64_t{token} * columns + first + offset, values);
      }
    }
#pragma unroll
    for (std::uint32_t i = 0; i < Count; ++i) sums[offset + i] = values[i];
  }
}

__device__ float sum_of_block(float value, float (&parts)[kWarps]) {
  value = sum_of_lanes(value);
  if (threadIdx.x % kWarpLanes == 0) parts[threadIdx.x / kWarpLanes] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (std::uint32_t warp = 0; warp < kWarps; ++warp) sum += parts[warp];
  return sum;
}

/// One sequence's row of y. The columns that a thread wrote are those that it scales in the end.
template <std::uint32_t Count, class T>
__device__ void pool(const T* x, std::uint32_t tokens, std::uint32_t columns, float* y, Shared& shared) {
  float square = 0;
  for (std::uint64_t first = 0; first < columns; first += kColumns) {
    sum_tokens<Count>(x, tokens, columns, first, shared.sums[threadIdx.x / kWarpLanes]);
    __syncthreads();
    if (threadIdx.x < kColumns && first + threadIdx.x < columns) {
      float sum = 0;
#pragma unroll
      for (std::uint32_t warp = 0; warp < kWarps; ++warp) sum += shared.sums[warp][threadIdx.x];
      const float mean = tokens > 0 ? sum / static_cast<float>(tokens) : 0.0f;
      y[first + threadIdx.x] = mean;
      square += mean * mean;
    }
    __syncthreads();
  }
  const float norm = sqrtf(sum_of_block(square, shared.squares));
  // Not fmaxf, which would turn a NaN into the smallest norm.
  const float factor = 1.0f / (norm < kSmallestNorm ? kSmallestNorm : norm);
  if (threadIdx.x < kColumns) {
    for (std::uint64_t column = threadIdx.x; column < columns; column += kColumns) y[column] *= factor;
  }
  __syncthreads();  // The next sequence overwrites what the threads read.
}

template <class T>
__device__ void mean_pool(const T* x, const std::int32_t* lengths, float* y, std::uint32_t batch,
                          std::uint32_t sequence, std::uint32_t columns) {
  __shared__ Shared shared;
  wait_for_dependencies();
  const bool vectorized = columns % kVectorOf<T> == 0 && is_vector_aligned(x);
  for (std::uint64_t i = blockIdx.x; i < batch; i += gridDim.x) {
    const std::uint32_t tokens = tokens_of(lengths[i], sequence);
    const T* tokens_of_x = x + i * sequence * columns;
    float* row = y + i * columns;
    if (vectorized) {
      pool<kVectorOf<T>>(tokens_of_x, tokens, columns, row, shared);
    } else {
      pool<1>(tokens_of_x, tokens, columns, row, shared);
    }
  }
}

}  // namespace

#define WEFT_MEAN_POOL(dtype, T)                                                                     \
  extern "C" __global__ void __launch_bounds__(kThreads)                                             \
      weft_mean_pool_##dtype(const T* x, const std::int32_t* lengths, float* y, std::uint32_t batch, \
                             std::uint32_t sequence, std::uint32_t columns) {                        \
    mean_pool(x, lengths, y, batch, sequence, columns);                                              \
  }

WEFT_MEAN_POOL(f32, float)
WEFT_MEAN_POOL(f16, __half)
WEFT_MEAN_POOL(bf16, __nv_bfloat16)
