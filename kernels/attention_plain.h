#pragma once

#include "attention_block.h"
#include "attention_head.h"
#include "device_code.h"

#include <cstdint>

// Attention in f32 on the ordinary cores, for device code alone. Scores: a lane a key, so that a key's element is read
// once for all queries of the warp. Result: a lane every 32nd column, the weights handed round by shuffles.

namespace weft::kernels::attention_block {

template <std::uint32_t Size, class T>
struct alignas(16) PlainShared {
  T q[kPlainQueries][Size];
  T k[kPlainKeys][kPlainKeyStride<Size>];
  T v[kPlainKeys][Size];
};

/// Copies `Rows` tokens from `first` on; zeros where they or their columns end.
template <std::uint32_t Rows, std::uint32_t Stride, std::uint32_t Size>
__device__ void stage_plain(const AttentionHead<float>& head, const float* source, const float* bias,
                            std::uint32_t first, float (&rows)[Rows][Stride]) {
  for (std::uint32_t i = threadIdx.x; i < Rows * Size; i += kThreads) {
    const std::uint32_t row = i / Size;
    const std::uint32_t column = i % Size;
    const bool inside = first + row < head.tokens() && column < head.size;
    float value = inside ? source[(first + row) * head.stride + column] : 0.0f;
    if (bias != nullptr && inside) value += bias[column];
    rows[row][column] = value;
  }
}

/// As stage_plain without a bias, four columns at a time.
template <std::uint32_t Rows, std::uint32_t Stride, std::uint32_t Size>
__device__ void stage_plain_vectors(const AttentionHead<float>& head, const float* source, std::uint32_t first,
                                    float (&rows)[Rows][Stride]) {
  constexpr std::uint32_t kVectors = Size / 4;
#pragma unroll
  for (std::uint32_t i = threadIdx.x; i < Rows * kVectors; i += kThreads) {
    const std::uint32_t row = i / kVectors;
    const std::uint32_t column = i % kVectors * 4;
    const bool inside = first + row < head.tokens() && column < head.size;
    *reinterpret_cast<float4*>(&rows[row][column]) =
        inside ? *reinterpret_cast<const float4*>(source + (first + row) * head.stride + column) : float4{};
  }
}

/// The queries of a warp, between tiles.
template <std::uint32_t Size>
struct PlainState {
  float max[kPlainWarpQueries];
  float sum[kPlainWarpQueries];  // this lane's part
  float result[kPlainWarpQueries][Size / kWarpLanes];
};

/// Takes the staged keys into the softmax. `key` is this lane's.
template <std::uint32_t Size>
__device__ void attend_plain_tile(const AttentionHead<float>& head, const PlainShared<Size, float>& shared,
                                  std::uint32_t key, PlainState<Size>& state) {
  const std::uint32_t lane = threadIdx.x % kWarpLanes;
  const std::uint32_t first_query = threadIdx.x / kWarpLanes * kPlainWarpQueries;
  float weights[kPlainWarpQueries] = {};
#pragma unroll 4
  for (std::uint32_t column = 0; column < Size; column += 4) {
    const float4 k = *reinterpret_cast<const float4*>(&shared.k[lane][column]);
#pragma unroll
    for (std::uint32_t i = 0; i < kPlainWarpQueries; ++i) {
      const float4 q = *reinterpret_cast<const float4*>(&shared.q[first_query + i][column]);
      weights[i] += q.x * k.x;
      weights[i] += q.y * k.y;
      weights[i] += q.z * k.z;
      weights[i] += q.w * k.w;
    }
  }
#pragma unroll
  for (std::uint32_t i = 0; i < kPlainWarpQueries; ++i) {
    const float score = key < head.tokens() ? weights[i] * head.scale : kMinusInfinity;
    const float max = fmaxf(state.max[i], max_of_lanes(score));
    const float kept = expf(state.max[i] - max);
    weights[i] = expf(score - max);
    state.max[i] = max;
    state.sum[i] = state.sum[i] * kept + weights[i];
#pragma unroll
    for (std::uint32_t j = 0; j < Size / kWarpLanes; ++j) state.result[i][j] *= kept;
  }
#pragma unroll 8
  for (std::uint32_t row = 0; row < kPlainKeys; ++row) {
#pragma unroll
    for (std::uint32_t i = 0; i < kPlainWarpQueries; ++i) {
      const float weight = __shfl_sync(kAllLanes, weights[i], static_cast<int>(row));
#pragma unroll
      for (std::uint32_t j = 0; j < Size / kWarpLanes; ++j) {
        state.result[i][j] += weight * shared.v[row][lane + j * kWarpLanes];
      }
    }
  }
}

/// Those of rows [begin, begin + kPlainQueries) of y that count, for heads of at most `Size`.
template <std::uint32_t Size>
__device__ void attend(const AttentionHead<float>& head, std::uint64_t begin, PlainShared<Size, float>& shared) {
  static_assert(sizeof(PlainShared<Size, float>) == kPlainSharedBytes<Size>);
  if (begin >= head.tokens()) return;
  const auto first = static_cast<std::uint32_t>(begin);
  const std::uint32_t lane = threadIdx.x % kWarpLanes;

  stage_plain<kPlainQueries, Size, Size>(head, head.q, head.q_bias, first, shared.q);
  PlainState<Size> state = {};
#pragma unroll
  for (float& max : state.max) max = kMinusInfinity;
  for (std::uint32_t key = 0; key < head.tokens(); key += kPlainKeys) {
    if (head.vectorized) {
      stage_plain_vectors<kPlainKeys, kPlainKeyStride<Size>, Size>(head, head.k, key, shared.k);
      stage_plain_vectors<kPlainKeys, Size, Size>(head, head.v, key, shared.v);
    } else {
      stage_plain<kPlainKeys, kPlainKeyStride<Size>, Size>(head, head.k, nullptr, key, shared.k);
      stage_plain<kPlainKeys, Size, Size>(head, head.v, nullptr, key, shared.v);
    }
    __syncthreads();
    attend_plain_tile(head, shared, key + lane, state);
    __syncthreads();
  }

#pragma unroll
  for (std::uint32_t i = 0; i < kPlainWarpQueries; ++i) {
    const float factor = 1.0f / sum_of_lanes(state.sum[i]);
    const std::uint32_t query = first + threadIdx.x / kWarpLanes * kPlainWarpQueries + i;
    if (query >= head.tokens()) continue;
#pragma unroll
    for (std::uint32_t j = 0; j < Size / kWarpLanes; ++j) {
      const std::uint32_t column = lane + j * kWarpLanes;
      if (column >= head.size) continue;
      head.y[query * head.y_stride + column] = state.result[i][j] * factor + head.v_bias[column];
    }
  }
}

}  // namespace weft::kernels::attention_block
