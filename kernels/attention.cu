#include "attention_block.h"
#include "attention_head.h"
#include "attention_plain.h"
#include "attention_tensor.h"
#include "device_code.h"

#include <cstdint>

// softmax(q k^T scale) v with the softmax made online: a block takes a tile of queries of one head and goes through the
// keys and values tile by tile, staged in shared memory, so that scores never leave the multiprocessor.

namespace {

using namespace weft::kernels;
using namespace attention_block;

template <class T>
struct Problem {
  const T* qkv;
  const T* bias;
  const std::int32_t* lengths;
  T* y;
  std::uint32_t batch;
  std::uint32_t sequence;
  std::uint32_t heads;
  std::uint32_t head_size;
  float scale;
};

template <class T>
__device__ AttentionHead<T> head_of(const Problem<T>& problem, std::uint64_t item, std::uint64_t head) {
  const std::uint64_t hidden = std::uint64_t{problem.heads} * problem.head_size;
  const std::uint64_t column = head * problem.head_size;
  const T* q = problem.qkv + item * problem.sequence * hidden * 3 + column;
  return {.q = q,
          .k = q + hidden,
          .v = q + hidden * 2,
          .q_bias = problem.bias + column,
          .v_bias = problem.bias + hidden * 2 + column,
          .y = problem.y + item * problem.sequence * hidden + column,
          .stride = hidden * 3,
          .y_stride = hidden,
          .sequence = problem.sequence,
          .size = problem.head_size,
          .scale = problem.scale,
          .vectorized = problem.head_size % kVectorOf<T> == 0 && is_vector_aligned(problem.qkv) &&
                        is_vector_aligned(problem.bias) && is_vector_aligned(problem.y)};
}

/// The whole problem, whatever the grid is.
template <std::uint32_t Queries, class T, class Shared>
__device__ void attention(const Problem<T>& problem, std::uint32_t max_head_size, Shared& shared) {
  if (problem.head_size <= max_head_size) {
    for (std::uint64_t first = std::uint64_t{blockIdx.x} * Queries; first < problem.sequence;
         first += std::uint64_t{gridDim.x} * Queries) {
      for (std::uint64_t item = blockIdx.z; item < problem.batch; item += gridDim.z) {
        for (std::uint64_t index = blockIdx.y; index < problem.heads; index += gridDim.y) {
          AttentionHead<T> head = head_of(problem, item, index);
          wait_for_dependencies();
          head.length = problem.lengths[item];
          attend(head, first, shared);
          fill_beyond_length<Queries>(head, first);
        }
      }
    }
  }
  wait_for_dependencies();  // of a block that had nothing to do
}

}  // namespace

// The blocks of a multiprocessor bound a thread's registers: as many as fit with next to no spilling.
#define WEFT_ATTENTION(size, dtype, T, method, blocks)                                                                 \
  extern "C" __global__ void __launch_bounds__(kThreads, blocks) weft_attention_##size##_##dtype(                      \
      const T* qkv, const T* bias, const std::int32_t* lengths, T* y, std::uint32_t batch, std::uint32_t sequence,     \
      std::uint32_t heads, std::uint32_t head_size, float scale) {                                                     \
    __shared__ method##Shared<size, T> shared;                                                                         \
    attention<k##method##Queries, T>({qkv, bias, lengths, y, batch, sequence, heads, head_size, scale}, size, shared); \
  }

WEFT_ATTENTION(32, f32, float, Plain, 4)
WEFT_ATTENTION(64, f32, float, Plain, 3)
WEFT_ATTENTION(128, f32, float, Plain, 3)
WEFT_ATTENTION(32, f16, __half, Tensor, 5)
WEFT_ATTENTION(64, f16, __half, Tensor, 4)
WEFT_ATTENTION(128, f16, __half, Tensor, 2)
WEFT_ATTENTION(32, bf16, __nv_bfloat16, Tensor, 5)
WEFT_ATTENTION(64, bf16, __nv_bfloat16, Tensor, 4)
WEFT_ATTENTION(128, bf16, __nv_bfloat16, Tensor, 2)
