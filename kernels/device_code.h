#pragma once

#include "device/cuda/dependencies.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// What the kernels share, for device code alone: the start of every kernel, elements as f32, vectors, the gelu, and
// reductions of a warp.
//
// Bound memory is read through plain pointers, neither `const __restrict__` nor __ldg, so that no load takes the
// non-coherent path: a kernel may start while the one before it still writes what it reads.

namespace weft::kernels {

inline constexpr std::uint32_t kWarpLanes = 32;
inline constexpr std::uint32_t kAllLanes = 0xffffffff;

using cuda::wait_for_dependencies;

__device__ inline float to_float(float value) { return value; }
__device__ inline float to_float(__half value) { return __half2float(value); }
__device__ inline float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

/// Rounded to the nearest T.
template <class T>
__device__ T from_float(float value);
template <>
__device__ inline float from_float<float>(float value) {
  return value;
}
template <>
__device__ inline __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

/// Elements of T in the 16 bytes that a thread reads and writes at once.
template <class T>
inline constexpr std::uint32_t kVectorOf = sizeof(uint4) / sizeof(T);

/// Whether elements may be read and written there as vectors.
template <class T>
__device__ bool is_vector_aligned(const T* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % sizeof(uint4) == 0;
}

/// Reads `Count` neighbours: one, or a vector of them, which is aligned.
template <std::uint32_t Count, class T>
__device__ void load(const T* source, float (&values)[Count]) {
  if constexpr (Count == 1) {
    values[0] = to_float(*source);
  } else {
    static_assert(Count == kVectorOf<T>);
    const uint4 vector = *reinterpret_cast<const uint4*>(source);
    const auto* elements = reinterpret_cast<const T*>(&vector);
#pragma unroll
    for (std::uint32_t i = 0; i < Count; ++i) values[i] = to_float(elements[i]);
  }
}

/// Adds the neighbours at `source` to `values`.
template <std::uint32_t Count, class T>
__device__ void load_and_add(const T* source, float (&values)[Count]) {
  float terms[Count];
  load(source, terms);
#pragma unroll
  for (std::uint32_t i = 0; i < Count; ++i) values[i] += terms[i];
}

template <std::uint32_t Count, class T>
__device__ void store(T* destination, const float (&values)[Count]) {
  if constexpr (Count == 1) {
    *destination = from_float<T>(values[0]);
  } else {
    static_assert(Count == kVectorOf<T>);
    uint4 vector;
    auto* elements = reinterpret_cast<T*>(&vector);
#pragma unroll
    for (std::uint32_t i = 0; i < Count; ++i) elements[i] = from_float<T>(values[i]);
    *reinterpret_cast<uint4*>(destination) = vector;
  }
}

__device__ inline float gelu_of(float value) {
  constexpr float kHalfRoot = 0.70710678118654752f;  // 1 / sqrt(2)
  return 0.5f * value * (1.0f + erff(value * kHalfRoot));
}

/// Tokens of a sequence that count: its length, kept within 0 and the sequence.
__device__ inline std::uint32_t tokens_of(std::int32_t length, std::uint32_t sequence) {
  if (length <= 0) return 0;
  const auto tokens = static_cast<std::uint32_t>(length);
  return tokens < sequence ? tokens : sequence;
}

/// The sum over each group of `Lanes` neighbouring lanes, in every lane of it. Called by whole warps.
template <std::uint32_t Lanes = kWarpLanes>
__device__ float sum_of_lanes(float value) {
#pragma unroll
  for (std::uint32_t distance = Lanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, distance);
  }
  return value;
}

/// The largest over each group of `Lanes` neighbouring lanes, but for NaNs. Called by whole warps.
template <std::uint32_t Lanes = kWarpLanes>
__device__ float max_of_lanes(float value) {
#pragma unroll
  for (std::uint32_t distance = Lanes / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

}  // namespace weft::kernels
