#include "cuda/captured_kernels.h"

#include <cub/device/device_reduce.cuh>
#include <thrust/execution_policy.h>
#include <thrust/scan.h>

#include <new>

namespace weft::test {

namespace {

__global__ void xor_each(const std::uint8_t* x, std::uint8_t* y, std::uint32_t count, std::uint8_t mask) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i] ^ mask;
}

template <std::uint32_t Amount>
__global__ void add_amount(std::uint32_t* y) {
  y[0] += Amount;
}

/// Hands out a workspace, front to back, and takes nothing back.
class WorkspaceAllocator {
 public:
  using value_type = char;

  WorkspaceAllocator(void* workspace, std::size_t bytes) : next_(static_cast<char*>(workspace)), left_(bytes) {}

  char* allocate(std::ptrdiff_t count) {
    const std::size_t bytes = (static_cast<std::size_t>(count) + 255) / 256 * 256;
    if (bytes > left_) throw std::bad_alloc();
    char* const given = next_;
    next_ += bytes;
    left_ -= bytes;
    return given;
  }
  void deallocate(char*, std::size_t) {}

 private:
  char* next_;
  std::size_t left_;
};

}  // namespace

void launch_xor(cudaStream_t stream, const std::uint8_t* x, std::uint8_t* y, std::uint32_t count, std::uint8_t mask) {
  xor_each<<<(count + 255) / 256, 256, 0, stream>>>(x, y, count, mask);
}

void launch_untouched(cudaStream_t stream, std::uint32_t* y) { add_amount<3><<<1, 1, 0, stream>>>(y); }

void launch_untouched_variant(cudaStream_t stream, std::uint32_t* y) { add_amount<4><<<1, 1, 0, stream>>>(y); }

cudaError_t cub_sum(void* workspace, std::size_t& bytes, const float* x, float* sum, int count, cudaStream_t stream) {
  return cub::DeviceReduce::Sum(workspace, bytes, x, sum, count, stream);
}

void thrust_scan(void* workspace, std::size_t bytes, const float* x, float* y, int count, cudaStream_t stream) {
  WorkspaceAllocator allocator(workspace, bytes);
  thrust::inclusive_scan(thrust::cuda::par_nosync(allocator).on(stream), x, x + count, y);
}

}  // namespace weft::test
