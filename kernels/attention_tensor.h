#pragma once

#include "attention_block.h"
#include "attention_head.h"
#include "device_code.h"
#include "matrix_instructions.h"

#include <cuda_pipeline_primitives.h>

#include <cstdint>

// Attention in f16 and bf16 on the tensor cores, for device code alone. A warp takes 16 queries and keeps them, their
// scores and their results in registers: the C places of the scores are the A places of the weights.

namespace weft::kernels::attention_block {

template <std::uint32_t Size, class T>
struct alignas(16) TensorShared {
  T k[kTensorKeys<Size>][kTensorKeyStride<Size>];
  T v[kTensorKeys<Size>][kTensorKeyStride<Size>];
};

constexpr std::uint32_t kStepKeys = 32;  // that go through the softmax at a time

/// Two floats as neighbours of a matrix, the first in the lower half.
template <class T>
__device__ std::uint32_t pack(float first, float second) {
  const T pair[2] = {from_float<T>(first), from_float<T>(second)};
  std::uint32_t bits;
  memcpy(&bits, pair, sizeof(bits));
  return bits;
}

template <class T>
__device__ float2 unpack(std::uint32_t bits) {
  T pair[2];
  memcpy(pair, &bits, sizeof(bits));
  return {to_float(pair[0]), to_float(pair[1])};
}

/// Two neighbours from an even column on; zeros where the row ends.
template <bool Vectorized, class T>
__device__ std::uint32_t load_pair(const T* row, std::uint32_t column, std::uint32_t size) {
  if constexpr (Vectorized) {
    return column < size ? *reinterpret_cast<const std::uint32_t*>(row + column) : 0;
  } else {
    return pack<T>(column < size ? to_float(row[column]) : 0.0f, column + 1 < size ? to_float(row[column + 1]) : 0.0f);
  }
}

template <bool Vectorized, class T>
__device__ void store_pair(T* row, std::uint32_t column, std::uint32_t size, float first, float second) {
  if constexpr (Vectorized) {
    if (column < size) *reinterpret_cast<std::uint32_t*>(row + column) = pack<T>(first, second);
  } else {
    if (column < size) row[column] = from_float<T>(first);
    if (column + 1 < size) row[column + 1] = from_float<T>(second);
  }
}

/// A lane's place in the matrices: see matrix_instructions.h.
struct MatrixPlace {
  std::uint32_t lane = threadIdx.x % kWarpLanes;
  std::uint32_t row = lane / 4;
  std::uint32_t pair = lane % 4 * 2;
  // Of the rows that load_matrices reads.
  std::uint32_t read_row = lane % 8;
  std::uint32_t read_matrix = lane / 8;
};

/// A lane's part of a row that all queries share.
template <bool Vectorized, std::uint32_t Size, class T>
__device__ void load_bias(const T* source, const MatrixPlace& place, std::uint32_t size,
                          std::uint32_t (&bias)[Size / 8]) {
#pragma unroll
  for (std::uint32_t i = 0; i < Size / 8; ++i) bias[i] = load_pair<Vectorized>(source, i * 8 + place.pair, size);
}

/// The warp's queries with their bias, 16 x Size; of tokens from `end` on, the bias alone.
template <bool Vectorized, std::uint32_t Size, class T>
__device__ void load_queries(const AttentionHead<T>& head, const MatrixPlace& place, std::uint32_t first,
                             std::uint32_t end, MatrixA (&q)[Size / 16]) {
  std::uint32_t bias[Size / 8];
  load_bias<Vectorized, Size>(head.q_bias, place, head.size, bias);
#pragma unroll
  for (std::uint32_t i = 0; i < Size / 16; ++i) {
#pragma unroll
    for (std::uint32_t j = 0; j < 4; ++j) {
      const std::uint32_t query = first + place.row + j % 2 * 8;
      const std::uint32_t column = i * 16 + j / 2 * 8 + place.pair;
      q[i][j] = query < end ? load_pair<Vectorized>(head.q + query * head.stride, column, head.size) : 0;
    }
  }
#pragma unroll
  for (std::uint32_t i = 0; i < Size / 16; ++i) {
#pragma unroll
    for (std::uint32_t j = 0; j < 4; ++j) {
      const float2 value = unpack<T>(q[i][j]);
      const float2 term = unpack<T>(bias[i * 2 + j / 2]);
      q[i][j] = pack<T>(value.x + term.x, value.y + term.y);
    }
  }
}

/// Starts to copy a tile of keys and values, tokens [first, end), as far as the steps read it; zeros where the tokens
/// or their columns end.
template <bool Vectorized, std::uint32_t Size, class T>
__device__ void stage(const AttentionHead<T>& head, std::uint32_t first, std::uint32_t end,
                      TensorShared<Size, T>& shared) {
  const std::uint32_t steps = (end - first + kStepKeys - 1) / kStepKeys;
  const std::uint32_t rows = steps < kTensorKeys<Size> / kStepKeys ? steps * kStepKeys : kTensorKeys<Size>;
  const auto is_inside = [&](std::uint32_t row, std::uint32_t column) {
    return first + row < end && column < head.size;
  };
  if constexpr (Vectorized) {
    constexpr std::uint32_t kVectors = Size / kVectorOf<T>;
#pragma unroll 1
    for (std::uint32_t i = threadIdx.x; i < rows * kVectors; i += kThreads) {
      const std::uint32_t row = i / kVectors;
      const std::uint32_t column = i % kVectors * kVectorOf<T>;
      if (is_inside(row, column)) {
        const std::uint64_t offset = (std::uint64_t{first} + row) * head.stride + column;
        __pipeline_memcpy_async(&shared.k[row][column], head.k + offset, sizeof(uint4));
        __pipeline_memcpy_async(&shared.v[row][column], head.v + offset, sizeof(uint4));
      } else {
        *reinterpret_cast<uint4*>(&shared.k[row][column]) = uint4{};
        *reinterpret_cast<uint4*>(&shared.v[row][column]) = uint4{};
      }
    }
  } else {
#pragma unroll 1
    for (std::uint32_t i = threadIdx.x; i < rows * Size; i += kThreads) {
      const std::uint32_t row = i / Size;
      const std::uint32_t column = i % Size;
      const bool inside = is_inside(row, column);
      const std::uint64_t offset = (std::uint64_t{first} + row) * head.stride + column;
      shared.k[row][column] = inside ? head.k[offset] : from_float<T>(0.0f);
      shared.v[row][column] = inside ? head.v[offset] : from_float<T>(0.0f);
    }
  }
  __pipeline_commit();
}

/// A thread's share of the keys and values of a short sequence, on their way to shared memory.
template <std::uint32_t Size, class T>
class ShortTile {
 public:
  /// Reads all tokens of the sequence, whatever its length is.
  __device__ explicit ShortTile(const AttentionHead<T>& head) {
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      if (row(i) >= head.sequence || column() >= head.size) continue;
      const std::uint64_t offset = row(i) * head.stride + column();
      k_[i] = *reinterpret_cast<const uint4*>(head.k + offset);
      v_[i] = *reinterpret_cast<const uint4*>(head.v + offset);
    }
  }

  /// Values of tokens that do not count, which may be NaN, become zeros.
  __device__ void store(std::uint32_t tokens, TensorShared<Size, T>& shared) const {
#pragma unroll
    for (std::uint32_t i = 0; i < kCount; ++i) {
      *reinterpret_cast<uint4*>(&shared.k[row(i)][column()]) = k_[i];
      *reinterpret_cast<uint4*>(&shared.v[row(i)][column()]) = row(i) < tokens ? v_[i] : uint4{};
    }
  }

 private:
  static constexpr std::uint32_t kRowVectors = Size / kVectorOf<T>;
  static constexpr std::uint32_t kCount = kTensorQueries * kRowVectors / kThreads;
  static_assert(kThreads % kRowVectors == 0 && kTensorQueries * kRowVectors % kThreads == 0);

  __device__ static std::uint32_t row(std::uint32_t i) { return (threadIdx.x + i * kThreads) / kRowVectors; }
  __device__ static std::uint32_t column() { return threadIdx.x % kRowVectors * kVectorOf<T>; }

  uint4 k_[kCount] = {};
  uint4 v_[kCount] = {};
};

/// The queries of a warp, between steps. [0] is the place's row, [1] the row 8 below.
template <std::uint32_t Size>
struct TensorState {
  float max[2];
  float sum[2];  // this lane's part
  MatrixC result[Size / 8];
};

/// Takes kStepKeys staged keys, from row `row` of the tile and token `first` on, into the softmax.
template <class T, std::uint32_t Size>
__device__ void attend_step(const AttentionHead<T>& head, const MatrixPlace& place, const MatrixA (&q)[Size / 16],
                            const TensorShared<Size, T>& shared, std::uint32_t row, std::uint32_t first, float scale,
                            TensorState<Size>& state) {
  MatrixC weights[kStepKeys / 8] = {};
#pragma unroll
  for (std::uint32_t n = 0; n < kStepKeys / 16; ++n) {
#pragma unroll
    for (std::uint32_t i = 0; i < Size / 16; ++i) {
      // Matrices 0 and 1 are neighbouring columns of eight keys, 2 and 3 those of the next eight.
      MatrixB k[2];
      load_matrices(
          &shared.k[row + n * 16 + place.read_matrix / 2 * 8 + place.read_row][i * 16 + place.read_matrix % 2 * 8], k);
      multiply<T>(q[i], k[0], weights[n * 2]);
      multiply<T>(q[i], k[1], weights[n * 2 + 1]);
    }
  }

  float max[2] = {state.max[0], state.max[1]};
#pragma unroll
  for (std::uint32_t n = 0; n < kStepKeys / 8; ++n) {
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      const std::uint32_t key = first + n * 8 + place.pair + i % 2;
      weights[n][i] = key < head.tokens() ? weights[n][i] * scale : kMinusInfinity;
      max[i / 2] = fmaxf(max[i / 2], weights[n][i]);
    }
  }
#pragma unroll
  for (std::uint32_t i = 0; i < 2; ++i) {
    max[i] = max_of_lanes<4>(max[i]);
    const float kept = fast_exp2(state.max[i] - max[i]);
    state.max[i] = max[i];
    state.sum[i] *= kept;
#pragma unroll
    for (std::uint32_t n = 0; n < Size / 8; ++n) {
      state.result[n][i * 2] *= kept;
      state.result[n][i * 2 + 1] *= kept;
    }
  }
#pragma unroll
  for (std::uint32_t n = 0; n < kStepKeys / 8; ++n) {
#pragma unroll
    for (std::uint32_t i = 0; i < 4; ++i) {
      weights[n][i] = fast_exp2(weights[n][i] - max[i / 2]);
      state.sum[i / 2] += weights[n][i];
    }
  }

#pragma unroll
  for (std::uint32_t n = 0; n < kStepKeys / 16; ++n) {
    const MatrixA rounded = {
        pack<T>(weights[n * 2][0], weights[n * 2][1]), pack<T>(weights[n * 2][2], weights[n * 2][3]),
        pack<T>(weights[n * 2 + 1][0], weights[n * 2 + 1][1]), pack<T>(weights[n * 2 + 1][2], weights[n * 2 + 1][3])};
#pragma unroll
    for (std::uint32_t i = 0; i < Size / 16; ++i) {
      // Matrices 0 and 1 are neighbouring keys of eight columns, 2 and 3 those of the next eight.
      MatrixB v[2];
      load_transposed_matrices(
          &shared.v[row + n * 16 + place.read_matrix % 2 * 8 + place.read_row][i * 16 + place.read_matrix / 2 * 8], v);
      multiply<T>(rounded, v[0], state.result[i * 2]);
      multiply<T>(rounded, v[1], state.result[i * 2 + 1]);
    }
  }
}

/// The warp's rows of y, from token `first` on.
template <bool Vectorized, std::uint32_t Size, class T>
__device__ void store_results(const AttentionHead<T>& head, const MatrixPlace& place, std::uint32_t first,
                              const std::uint32_t (&bias)[Size / 8], const TensorState<Size>& state) {
#pragma unroll
  for (std::uint32_t i = 0; i < 2; ++i) {
    const float factor = 1.0f / sum_of_lanes<4>(state.sum[i]);
    const std::uint32_t query = first + place.row + i * 8;
    if (query >= head.tokens()) continue;
#pragma unroll
    for (std::uint32_t n = 0; n < Size / 8; ++n) {
      const float2 term = unpack<T>(bias[n]);
      store_pair<Vectorized>(head.y + query * head.y_stride, n * 8 + place.pair, head.size,
                             state.result[n][i * 2] * factor + term.x, state.result[n][i * 2 + 1] * factor + term.y);
    }
  }
}

/// Of a warp's queries, before the first step.
template <std::uint32_t Size>
__device__ TensorState<Size> initial_state() {
  return {{kMinusInfinity, kMinusInfinity}, {}, {}};
}

template <class T>
__device__ float scale_of_exponents(const AttentionHead<T>& head) {
  constexpr float kLog2OfE = 1.44269504088896341f;
  return head.scale * kLog2OfE;
}

/// All rows of y that count, of a sequence of at most kTensorQueries tokens. All that it reads it reads at once,
/// without waiting for the length: what is beyond has no weight.
template <std::uint32_t Size, class T>
__device__ void attend_short(const AttentionHead<T>& head, TensorShared<Size, T>& shared) {
  const MatrixPlace place;
  const std::uint32_t query = threadIdx.x / kWarpLanes * kTensorWarpQueries;

  const ShortTile<Size, T> tile(head);
  std::uint32_t bias[Size / 8];
  load_bias<true, Size>(head.v_bias, place, head.size, bias);
  MatrixA q[Size / 16];
  load_queries<true, Size>(head, place, query, head.sequence, q);
  tile.store(head.tokens(), shared);
  __syncthreads();
  if (query < head.tokens()) {
    TensorState<Size> state = initial_state<Size>();
#pragma unroll 1
    for (std::uint32_t row = 0; row < head.tokens(); row += kStepKeys) {
      attend_step(head, place, q, shared, row, row, scale_of_exponents(head), state);
    }
    store_results<true>(head, place, query, bias, state);
  }
  __syncthreads();  // The next head overwrites what the warps read.
}

/// Rows [first, first + kTensorQueries) of y, tile by tile of keys.
template <bool Vectorized, std::uint32_t Size, class T>
__device__ void attend_tiles(const AttentionHead<T>& head, std::uint32_t first, TensorShared<Size, T>& shared) {
  const MatrixPlace place;
  const std::uint32_t query = first + threadIdx.x / kWarpLanes * kTensorWarpQueries;
  const bool has_queries = query < head.tokens();

  stage<Vectorized>(head, 0, head.tokens(), shared);
  MatrixA q[Size / 16];
  load_queries<Vectorized, Size>(head, place, query, head.tokens(), q);
  TensorState<Size> state = initial_state<Size>();
#pragma unroll 1
  for (std::uint32_t tile = 0; tile < head.tokens(); tile += kTensorKeys<Size>) {
    if (tile > 0) stage<Vectorized>(head, tile, head.tokens(), shared);
    __pipeline_wait_prior(0);
    __syncthreads();
    if (has_queries) {
#pragma unroll 1
      for (std::uint32_t row = 0; row < kTensorKeys<Size> && tile + row < head.tokens(); row += kStepKeys) {
        attend_step(head, place, q, shared, row, tile + row, scale_of_exponents(head), state);
      }
    }
    __syncthreads();
  }
  if (!has_queries) return;
  std::uint32_t bias[Size / 8];
  load_bias<Vectorized, Size>(head.v_bias, place, head.size, bias);
  store_results<Vectorized>(head, place, query, bias, state);
}

/// Those of rows [first, first + kTensorQueries) of y that count, for heads of at most `Size`.
template <std::uint32_t Size, class T>
__device__ void attend(const AttentionHead<T>& head, std::uint64_t first, TensorShared<Size, T>& shared) {
  static_assert(sizeof(TensorShared<Size, T>) == kTensorSharedBytes<Size>);
  static_assert(kTensorQueries <= kTensorKeys<Size>, "A short sequence is one tile of keys.");
  if (head.vectorized && head.sequence <= kTensorQueries) {
    attend_short(head, shared);
  } else if (first < head.tokens() && head.vectorized) {
    attend_tiles<true>(head, static_cast<std::uint32_t>(first), shared);
  } else if (first < head.tokens()) {
    attend_tiles<false>(head, static_cast<std::uint32_t>(first), shared);
  }
}

}  // namespace weft::kernels::attention_block
