#include "device_code.h"
#include "row_block.h"

#include <cstdint>

// A warp a token. The loads of kAtOnce vectors stand before their stores, so that they are in flight together.

namespace {

using namespace weft::kernels;
using row_block::kRows;
using row_block::kThreads;

constexpr std::uint32_t kAtOnce = 2;

template <class T>
struct Problem {
  const std::int32_t* ids;
  const std::int32_t* types;
  const T* words;
  const T* positions;
  const T* kinds;
  T* y;
  std::uint32_t batch;
  std::uint32_t sequence;
  std::uint32_t hidden;
  std::uint32_t word_count;
  std::uint32_t position_count;
  std::uint32_t kind_count;
};

/// Row `id` of a table, or null where the table has none.
template <class T>
__device__ const T* row_of(const T* table, std::int64_t id, std::uint32_t rows, std::uint32_t columns) {
  return id >= 0 && id < rows ? table + static_cast<std::uint64_t>(id) * columns : nullptr;
}

template <std::uint32_t Count, class T>
__device__ void gather(const T* word, const T* position, const T* kind, T* y, std::uint32_t hidden) {
  constexpr std::uint32_t kStep = kWarpLanes * Count;
  for (std::uint64_t first = threadIdx.x % kWarpLanes * Count; first < hidden; first += kAtOnce * kStep) {
    float sums[kAtOnce][Count];
#pragma unroll
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      const std::uint64_t column = first + i * kStep;
      if (column >= hidden) continue;
      load(word + column, sums[i]);
      load_and_add(position + column, sums[i]);
      load_and_add(kind + column, sums[i]);
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kAtOnce; ++i) {
      const std::uint64_t column = first + i * kStep;
      if (column < hidden) store(y + column, sums[i]);
    }
  }
}

template <class T>
__device__ void fill_with_nan(T* y, std::uint32_t hidden) {
  const T nan = from_float<T>(__int_as_float(0x7fc00000));
  for (std::uint64_t column = threadIdx.x % kWarpLanes; column < hidden; column += kWarpLanes) y[column] = nan;
}

template <class T>
__device__ void embedding(const Problem<T>& problem) {
  wait_for_dependencies();
  const std::uint32_t hidden = problem.hidden;
  const bool vectorized = hidden % kVectorOf<T> == 0 && is_vector_aligned(problem.words) &&
                          is_vector_aligned(problem.positions) && is_vector_aligned(problem.kinds) &&
                          is_vector_aligned(problem.y);
  const std::uint64_t tokens = std::uint64_t{problem.batch} * problem.sequence;
  for (std::uint64_t token = std::uint64_t{blockIdx.x} * kRows + threadIdx.x / kWarpLanes; token < tokens;
       token += std::uint64_t{gridDim.x} * kRows) {
    const T* word = row_of(problem.words, problem.ids[token], problem.word_count, hidden);
    const T* kind = row_of(problem.kinds, problem.types[token], problem.kind_count, hidden);
    const T* position = row_of(problem.positions, token % problem.sequence, problem.position_count, hidden);
    T* y = problem.y + token * hidden;
    if (word == nullptr || position == nullptr || kind == nullptr) {
      fill_with_nan(y, hidden);
    } else if (vectorized) {
      gather<kVectorOf<T>>(word, position, kind, y, hidden);
    } else {
      gather<1>(word, position, kind, y, hidden);
    }
  }
}

}  // namespace

#define WEFT_EMBEDDING(dtype, T)                                                                                      \
  extern "C" __global__ void __launch_bounds__(kThreads)                                                              \
      weft_embedding_##dtype(const std::int32_t* ids, const std::int32_t* types, const T* words, const T* positions,  \
                             const T* kinds, T* y, std::uint32_t batch, std::uint32_t sequence, std::uint32_t hidden, \
                             std::uint32_t word_count, std::uint32_t position_count, std::uint32_t kind_count) {      \
    embedding<T>(                                                                                                     \
        {ids, types, words, positions, kinds, y, batch, sequence, hidden, word_count, position_count, kind_count});   \
  }

WEFT_EMBEDDING(f32, float)
WEFT_EMBEDDING(f16, __half)
WEFT_EMBEDDING(bf16, __nv_bfloat16)
