#include "raw_kernels.h"

#include <cuda/atomic>

namespace {

constexpr std::uint32_t kVector = 4;

__global__ void copy_in(float* to, const float* from, std::uint32_t floats) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint32_t vectors = floats / kVector;
  if (i < vectors) reinterpret_cast<float4*>(to)[i] = reinterpret_cast<const float4*>(from)[i];
  if (i < floats % kVector) to[vectors * kVector + i] = from[vectors * kVector + i];
}

__global__ void copy_out_and_flag(float* to, const float* from, std::uint32_t floats, std::uint64_t* counter,
                                  std::uint64_t* flag) {
  const std::uint32_t vectors = floats / kVector;
  for (std::uint32_t i = threadIdx.x; i < vectors; i += blockDim.x)
    reinterpret_cast<float4*>(to)[i] = reinterpret_cast<const float4*>(from)[i];
  for (std::uint32_t i = vectors * kVector + threadIdx.x; i < floats; i += blockDim.x) to[i] = from[i];
  __syncthreads();
  if (threadIdx.x != 0) return;
  const std::uint64_t n = ++*counter;
  ::cuda::atomic_ref<std::uint64_t, ::cuda::thread_scope_system>(*flag).store(n, ::cuda::memory_order_release);
}

}  // namespace

namespace weft::bench {

const void* raw_copy_in() noexcept { return reinterpret_cast<const void*>(&copy_in); }
const void* raw_copy_out_and_flag() noexcept { return reinterpret_cast<const void*>(&copy_out_and_flag); }

}  // namespace weft::bench
