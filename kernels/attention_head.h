#pragma once

#include "device_code.h"

#include <cstdint>

// For device code alone.

namespace weft::kernels {

/// One head of one sequence, as attention sees it.
///
/// The bias of the keys is not there: it adds the same to all scores of a query, which the softmax takes out again.
/// That of the values is added to the result, since the weights of a query add up to 1.
template <class T>
struct AttentionHead {
  const T* q;  // of token 0, as k, v and y
  const T* k;
  const T* v;
  const T* q_bias;
  const T* v_bias;
  T* y;
  std::uint64_t stride;    // elements from token to token of q, k and v
  std::uint64_t y_stride;  // of y
  std::uint32_t sequence;  // tokens of y
  std::uint32_t size;
  float scale;
  bool vectorized;  // q, k, v, their bias and y may be read and written as vectors
  std::int32_t length = 0;

  /// That are attended to. Made of the length only where they are asked for, so that nothing before waits for its load.
  __device__ std::uint32_t tokens() const { return tokens_of(length, sequence); }
};

constexpr float kMinusInfinity = -__builtin_huge_valf();

/// Zeros in `Count` neighbours of rows [begin, begin + rows) of y at a time.
template <std::uint32_t Count, class T>
__device__ void store_zeros(const AttentionHead<T>& head, std::uint64_t begin, std::uint32_t rows) {
  const float zeros[Count] = {};
  const std::uint32_t width = head.size / Count;
  for (std::uint32_t i = threadIdx.x; i < rows * width; i += blockDim.x) {
    store(head.y + (begin + i / width) * head.y_stride + i % width * Count, zeros);
  }
}

/// Zeros in those of the `Queries` rows of y from `first` on that stand for tokens beyond the length.
template <std::uint32_t Queries, class T>
__device__ void fill_beyond_length(const AttentionHead<T>& head, std::uint64_t first) {
  const std::uint64_t begin = first > head.tokens() ? first : head.tokens();
  const std::uint64_t end = first + Queries < head.sequence ? first + Queries : head.sequence;
  if (begin >= end) return;
  const auto rows = static_cast<std::uint32_t>(end - begin);
  if (head.vectorized) {
    store_zeros<kVectorOf<T>>(head, begin, rows);
  } else {
    store_zeros<1>(head, begin, rows);
  }
}

}  // namespace weft::kernels
