#include "device_code.h"
#include "mean_pool_block.h"

#include <cstdint>
#include <type_traits>

// A block a sequence: a thread sums a vector of neighbouring columns over its share of the tokens, and the sums of all
// shares meet in shared memory. Every sum has a fixed order.

namespace {

using namespace weft::kernels;
using namespace mean_pool_block;

constexpr float kSmallestNorm = 1e-12f;
constexpr std::uint32_t kMaxShares = 32;  // that a thread adds up
constexpr std::uint32_t kAtOnce = 8;      // tokens whose loads of a thread are in flight together

struct Shared {
  alignas(16) float sums[kSums];
  float squares[kWarps];
};
static_assert(sizeof(Shared) == kSharedBytes);

/// How the threads of a block divide the columns and the tokens of a sequence.
template <std::uint32_t Count>
struct Shares {
  static constexpr std::uint32_t kMaxWidth = kThreads * Count;

  __device__ explicit Shares(std::uint32_t columns)
      : width(columns < kMaxWidth ? columns : kMaxWidth),
        count(kMaxWidth / width < kMaxShares ? kMaxWidth / width : kMaxShares) {}

  std::uint32_t width;  // columns that the block sums at a time
  std::uint32_t count;  // shares of the tokens
  // This thread's. Its share is every `count`-th token from `index` on; some threads have none.
  std::uint32_t index = threadIdx.x * Count / width;
  std::uint32_t column = threadIdx.x * Count % width;
};

/// Tokens of a thread's share, as they were read.
template <std::uint32_t Count, class T>
struct Tokens {
  using Vector = std::conditional_t<Count == 1, T, uint4>;

  /// Reads kAtOnce, every `step`-th from `first` on, of those before `end`.
  __device__ void read(const T* x, std::uint32_t columns, std::uint32_t first, std::uint32_t step, std::uint32_t end) {
#pragma unroll
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      const std::uint32_t token = first + i * step;
      if (token < end) vectors[i] = *reinterpret_cast<const Vector*>(x + std::uint64_t{token} * columns);
    }
  }

  /// Adds those before `end`.
  __device__ void add_to(float (&sums)[Count], std::uint32_t first, std::uint32_t step, std::uint32_t end) const {
#pragma unroll
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      if (first + i * step < end) load_and_add(reinterpret_cast<const T*>(&vectors[i]), sums);
    }
  }

  Vector vectors[kAtOnce] = {};
};

__device__ float sum_of_block(float value, float (&parts)[kWarps]) {
  value = sum_of_lanes(value);
  if (threadIdx.x % kWarpLanes == 0) parts[threadIdx.x / kWarpLanes] = value;
  __syncthreads();
  float sum = 0;
#pragma unroll
  for (std::uint32_t warp = 0; warp < kWarps; ++warp) sum += parts[warp];
  return sum;
}

/// The means of `width` columns, from the sums of all shares; each replaces the first of its sums. Returns this
/// thread's part of the sum of their squares.
__device__ float average(std::uint32_t width, std::uint32_t shares, std::uint32_t stride, std::uint32_t tokens,
                         float (&sums)[kSums]) {
  float square = 0;
#pragma unroll 1
  for (std::uint32_t column = threadIdx.x; column < width; column += kThreads) {
    float sum = 0;
#pragma unroll 4
    for (std::uint32_t share = 0; share < shares; ++share) sum += sums[share * stride + column];
    const float mean = tokens > 0 ? sum / static_cast<float>(tokens) : 0.0f;
    sums[column] = mean;
    square += mean * mean;
  }
  return square;
}

/// One sequence's row of y. Each thread scales in the end the means that it made: the last ones are still in shared
/// memory, those before in y.
template <std::uint32_t Count, class T>
__device__ void pool(const T* x, const std::int32_t* length, std::uint32_t sequence, std::uint32_t columns,
                     const Shares<Count>& shares, float* y, Shared& shared) {
  float square = 0;
  std::uint32_t first = 0;
  std::uint32_t width = shares.width;
  for (;;) {
    const std::uint32_t end = shares.index < shares.count && shares.column < width ? sequence : 0;
    const T* column = x + first + shares.column;
    Tokens<Count, T> share;
    share.read(column, columns, shares.index, shares.count, end);
    // Read behind the first tokens, which do not wait for it: what is beyond is not added.
    const std::uint32_t tokens = tokens_of(*length, sequence);
    const std::uint32_t own_end = tokens < end ? tokens : end;
    float sums[Count] = {};
    share.add_to(sums, shares.index, shares.count, own_end);
    const std::uint32_t step = kAtOnce * shares.count;
#pragma unroll 1
    for (std::uint32_t token = shares.index + step; token < own_end; token += step) {
      share.read(column, columns, token, shares.count, own_end);
      share.add_to(sums, token, shares.count, own_end);
    }
#pragma unroll
    for (std::uint32_t i = 0; i < Count; ++i) shared.sums[threadIdx.x * Count + i] = sums[i];
    __syncthreads();
    square += average(width, shares.count, shares.width, tokens, shared.sums);
    if (columns - first == width) break;
#pragma unroll 1
    for (std::uint32_t i = threadIdx.x; i < width; i += kThreads) y[first + i] = shared.sums[i];
    first += width;
    if (columns - first < width) width = columns - first;
    __syncthreads();
  }
  const float norm = sqrtf(sum_of_block(square, shared.squares));
  // Not fmaxf, which would turn a NaN into the smallest norm.
  const float factor = 1.0f / (norm < kSmallestNorm ? kSmallestNorm : norm);
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < width; i += kThreads) y[first + i] = shared.sums[i] * factor;
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < first; i += kThreads) y[i] *= factor;
  __syncthreads();  // The next sequence overwrites what the threads read.
}

template <std::uint32_t Count, class T>
__device__ void pool_all(const T* x, const std::int32_t* lengths, float* y, std::uint32_t batch, std::uint32_t sequence,
                         std::uint32_t columns, Shared& shared) {
  const Shares<Count> shares(columns);
  wait_for_dependencies();
  for (std::uint64_t i = blockIdx.x; i < batch; i += gridDim.x) {
    pool(x + i * sequence * columns, lengths + i, sequence, columns, shares, y + i * columns, shared);
  }
}

template <class T>
__device__ void mean_pool(const T* x, const std::int32_t* lengths, float* y, std::uint32_t batch,
                          std::uint32_t sequence, std::uint32_t columns) {
  __shared__ Shared shared;
  if (columns % kVectorOf<T> == 0 && is_vector_aligned(x)) {
    pool_all<kVectorOf<T>>(x, lengths, y, batch, sequence, columns, shared);
  } else {
    pool_all<1>(x, lengths, y, batch, sequence, columns, shared);
  }
}

}  // namespace

#define WEFT_MEAN_POOL(dtype, T)                                                                     \
  extern "C" __global__ void __launch_bounds__(kThreads, 2)                                          \
      weft_mean_pool_##dtype(const T* x, const std::int32_t* lengths, float* y, std::uint32_t batch, \
                             std::uint32_t sequence, std::uint32_t columns) {                        \
    mean_pool(x, lengths, y, batch, sequence, columns);                                              \
  }

WEFT_MEAN_POOL(f32, float)
WEFT_MEAN_POOL(f16, __half)
WEFT_MEAN_POOL(bf16, __nv_bfloat16)
