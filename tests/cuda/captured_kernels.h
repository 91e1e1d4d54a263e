#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

// Work as libraries enqueue it, by the test program's own CUDA runtime.

namespace weft::test {

/// y[i] = x[i] ^ mask.
void launch_xor(cudaStream_t stream, const std::uint8_t* x, std::uint8_t* y, std::uint32_t count, std::uint8_t mask);

/// y[0] += `Amount`, by a kernel that nothing else launches: one is loaded with its first launch, the other is a second
/// variant of the same template.
void launch_untouched(cudaStream_t stream, std::uint32_t* y);
void launch_untouched_variant(cudaStream_t stream, std::uint32_t* y);

/// CUB's sum of x: without a workspace it tells the bytes that it needs.
cudaError_t cub_sum(void* workspace, std::size_t& bytes, const float* x, float* sum, int count, cudaStream_t stream);

/// Thrust's inclusive scan of x, its temporary storage taken from the workspace.
void thrust_scan(void* workspace, std::size_t bytes, const float* x, float* y, int count, cudaStream_t stream);

}  // namespace weft::test
