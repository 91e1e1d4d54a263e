// The kernels of support/foreign_kernels.h.

#include "row_scale.h"

#include <cooperative_groups.h>

#include <cstdint>

namespace {

__device__ void cluster_sum(const std::uint32_t* x, std::uint32_t* y) {
#if __CUDA_ARCH__ >= 900
  namespace cg = cooperative_groups;
  __shared__ std::uint32_t mine;
  const cg::cluster_group cluster = cg::this_cluster();
  mine = x[blockIdx.x];
  cluster.sync();
  std::uint32_t sum = 0;
  for (unsigned int rank = 0; rank < cluster.num_blocks(); ++rank) sum += *cluster.map_shared_rank(&mine, rank);
  y[blockIdx.x] = sum;
  cluster.sync();  // Nobody's shared memory goes while another block reads it.
#endif
}

}  // namespace

#if __CUDA_ARCH__ >= 900
#define PAIRS __cluster_dims__(2, 1, 1)
#else
#define PAIRS
#endif

extern "C" __global__ void cluster_sums(const std::uint32_t* x, std::uint32_t* y) { cluster_sum(x, y); }

extern "C" __global__ void PAIRS pair_sums(const std::uint32_t* x, std::uint32_t* y) { cluster_sum(x, y); }

extern "C" __global__ void grid_sums(const std::uint32_t* x, std::uint32_t* partial, std::uint32_t* y) {
  partial[blockIdx.x] = x[blockIdx.x];
  cooperative_groups::this_grid().sync();
  std::uint32_t sum = 0;
  for (unsigned int block = 0; block < gridDim.x; ++block) sum += partial[block];
  y[blockIdx.x] = sum;
}

extern "C" {
__constant__ float scale;
__device__ float table[3];
}

extern "C" __global__ void from_globals(float* y) { y[threadIdx.x] = scale * table[threadIdx.x]; }

extern "C" __global__ void row_scale(weft::test::RowScale params) {
  const std::int64_t row = blockIdx.x;
  for (std::int64_t column = threadIdx.x; column < params.columns; column += blockDim.x)
    params.y[row * params.y_stride + column] = params.alpha * params.x[row * params.x_stride + column];
}
