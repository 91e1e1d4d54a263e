#include "device_code.h"
#include "linear_tile.h"

#include <cstdint>

// y = x w^T + b, tiled through shared memory. Both operands are read along their rows.
//
// Each thread computes a 2 x 2 patch of y over every fourth group of four columns; four neighbouring lanes then add
// their parts. Against one output a thread this halves the reads of shared memory, which bound the inner loop. Tiles
// are small so that a batch of 32 spreads over tens of multiprocessors: such a layer takes as long as one block.

namespace {

using namespace weft::kernels::linear_tile;
using weft::kernels::is_vector_aligned;
using weft::kernels::kAllLanes;
using weft::kernels::kWarpLanes;
using weft::kernels::wait_for_dependencies;

constexpr std::uint32_t kVector = 4;                    // floats of a vector load
constexpr std::uint32_t kPatch = 2;                     // rows and columns of a thread's patch
constexpr std::uint32_t kInnerLanes = kPatch * kPatch;  // lanes that share a patch; each ends with one element of it
constexpr std::uint32_t kInnerStep = kInnerLanes * kVector;
constexpr std::uint32_t kWarps = kThreads / kWarpLanes;
constexpr std::uint32_t kStagedRows = kRows + kOuts;
constexpr std::uint32_t kStagedVectors = kStagedRows / kWarps;

static_assert(kInner == kWarpLanes * kVector, "A warp stages one row of a tile with one vector a lane.");
static_assert(kStagedRows % kWarps == 0 && kRows % kWarps == 0);
static_assert(kThreads == kRows * kOuts, "Each thread ends with one element of y.");

struct Problem {
  const float* x;
  const float* w;
  const float* b;
  float* y;
  std::uint32_t rows;
  std::uint32_t in;
  std::uint32_t out;
};

/// A thread's patch of the tile, and its lane among those that share it. A warp takes 2 x 4 patches, the squarest
/// choice and so the one that reads the fewest bytes.
struct Place {
  std::uint32_t warp = threadIdx.x / kWarpLanes;
  std::uint32_t lane = threadIdx.x % kWarpLanes;
  std::uint32_t inner = lane % kInnerLanes;
  std::uint32_t patch_row = warp / 2 * 2 + lane / kInnerLanes % 2;
  std::uint32_t patch_out = warp % 2 * 4 + lane / kInnerLanes / 2;

  // Patches interleave: neighbours in the tile are neighbours in shared memory.
  __device__ std::uint32_t row(std::uint32_t i) const { return patch_row + i * (kRows / kPatch); }
  __device__ std::uint32_t out(std::uint32_t j) const { return patch_out + j * (kOuts / kPatch); }
};

/// A tile on its way from global to shared memory: in registers, so that all loads are in flight at once and the next
/// tile's overlap the arithmetic of this one.
struct Staged {
  float4 vectors[kStagedVectors];
};

/// The first `left` of four floats, zeros for the rest. `Vectorized`: 16-byte aligned, and `left` is 0 or at least 4.
template <bool Vectorized>
__device__ float4 load(const float* source, std::uint32_t left) {
  if constexpr (Vectorized) {
    return left != 0 ? *reinterpret_cast<const float4*>(source) : float4{};
  } else {
    return {left > 0 ? source[0] : 0.0f, left > 1 ? source[1] : 0.0f, left > 2 ? source[2] : 0.0f,
            left > 3 ? source[3] : 0.0f};
  }
}

/// Columns [column, column + width) of the tile at (row0, out0): rows of x, then rows of w. What lies outside is zero.
template <bool Vectorized>
__device__ void stage(const Problem& problem, const Place& place, std::uint64_t row0, std::uint64_t out0,
                      std::uint64_t column, std::uint32_t width, Staged& staged) {
  const std::uint32_t offset = place.lane * kVector;
  const std::uint32_t left = offset < width ? width - offset : 0;
#pragma unroll
  for (std::uint32_t i = 0; i < kStagedVectors; ++i) {
    const std::uint32_t staged_row = place.warp + i * kWarps;
    const bool of_x = i < kRows / kWarps;
    const std::uint64_t row = of_x ? row0 + staged_row : out0 + (staged_row - kRows);
    const bool inside = row < (of_x ? problem.rows : problem.out);
    const float* matrix = of_x ? problem.x : problem.w;
    staged.vectors[i] = load<Vectorized>(matrix + row * problem.in + column + offset, inside ? left : 0);
  }
}

using Tile = float[kStagedRows][kRowStride];

__device__ void store(const Place& place, const Staged& staged, Tile& tile) {
#pragma unroll
  for (std::uint32_t i = 0; i < kStagedVectors; ++i) {
    *reinterpret_cast<float4*>(&tile[place.warp + i * kWarps][place.lane * kVector]) = staged.vectors[i];
  }
}

/// Adds the products of the tile's first `width` columns (zeros up to the next multiple of kInnerStep) to the patch.
__device__ void multiply(const Place& place, const Tile& tile, std::uint32_t width, float (&patch)[kPatch][kPatch]) {
#pragma unroll 2
  for (std::uint32_t column = place.inner * kVector; column < width; column += kInnerStep) {
    float4 x[kPatch];
    float4 w[kPatch];
#pragma unroll
    for (std::uint32_t i = 0; i < kPatch; ++i) {
      x[i] = *reinterpret_cast<const float4*>(&tile[place.row(i)][column]);
      w[i] = *reinterpret_cast<const float4*>(&tile[kRows + place.out(i)][column]);
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kPatch; ++i) {
#pragma unroll
      for (std::uint32_t j = 0; j < kPatch; ++j) {
        patch[i][j] += x[i].x * w[j].x;
        patch[i][j] += x[i].y * w[j].y;
        patch[i][j] += x[i].z * w[j].z;
        patch[i][j] += x[i].w * w[j].w;
      }
    }
  }
}

/// Adds the four lanes' patches; lane (i, j) of the four returns element (i, j). Each step sends the half that the
/// other lane keeps.
__device__ float reduce(const Place& place, const float (&patch)[kPatch][kPatch]) {
  const bool second_row = (place.inner & 2) != 0;
  const bool second_out = (place.inner & 1) != 0;
  float half[kPatch];
#pragma unroll
  for (std::uint32_t j = 0; j < kPatch; ++j) {
    const float sent = second_row ? patch[0][j] : patch[1][j];
    half[j] = (second_row ? patch[1][j] : patch[0][j]) + __shfl_xor_sync(kAllLanes, sent, 2);
  }
  const float sent = second_out ? half[0] : half[1];
  return (second_out ? half[1] : half[0]) + __shfl_xor_sync(kAllLanes, sent, 1);
}

enum class Epilogue { store, relu, accumulate };

/// One block's part of y, over columns [begin, end) of x and w.
template <Epilogue Kind, bool Vectorized>
__device__ void compute(const Problem& problem, const Place& place, Tile& tile, std::uint64_t row0, std::uint64_t out0,
                        std::uint64_t begin, std::uint64_t end, bool with_bias) {
  const std::uint64_t row = row0 + place.row(place.inner / kPatch);
  const std::uint64_t out = out0 + place.out(place.inner % kPatch);
  const bool inside = row < problem.rows && out < problem.out;
  // Early, so that its latency hides behind the tile's.
  const float bias = with_bias && inside ? problem.b[out] : 0.0f;

  const auto width_at = [end](std::uint64_t column) {
    return static_cast<std::uint32_t>(end - column < kInner ? end - column : kInner);
  };
  float patch[kPatch][kPatch] = {};
  Staged staged;
  stage<Vectorized>(problem, place, row0, out0, begin, width_at(begin), staged);
  for (std::uint64_t column = begin; column < end; column += kInner) {
    store(place, staged, tile);
    __syncthreads();
    const std::uint64_t next = column + kInner;
    if (next < end) stage<Vectorized>(problem, place, row0, out0, next, width_at(next), staged);
    multiply(place, tile, width_at(column), patch);
    __syncthreads();
  }

  float value = reduce(place, patch) + bias;
  if (!inside) return;
  float* y = problem.y + row * problem.out + out;
  if constexpr (Kind == Epilogue::accumulate) {
    atomicAdd(y, value);
  } else {
    // Not fmaxf, which would turn a NaN into 0.
    if constexpr (Kind == Epilogue::relu) value = value < 0.0f ? 0.0f : value;
    *y = value;
  }
}

/// The whole problem, whatever the grid is; the launch rule gives each block one tile where the grid's axes allow it.
template <Epilogue Kind, bool HasBias>
__device__ void linear(const Problem& problem, std::uint32_t splits) {
  __shared__ alignas(16) Tile tile;
  wait_for_dependencies();
  const Place place;
  const bool vectorized = problem.in % kVector == 0 && is_vector_aligned(problem.x) && is_vector_aligned(problem.w);
  for (std::uint32_t split = blockIdx.z; split < splits; split += gridDim.z) {
    std::uint64_t begin = 0;
    std::uint64_t end = problem.in;
    if constexpr (Kind == Epilogue::accumulate) {
      // A multiple of four columns each, so that no split loses the vector loads.
      const std::uint64_t share = problem.in / splits + (problem.in % splits != 0 ? 1 : 0);
      const std::uint64_t columns = (share + kVector - 1) / kVector * kVector;
      begin = split * columns;
      end = begin + columns < end ? begin + columns : end;
      if (begin >= end) return;
    }
    const bool with_bias = HasBias && split == 0;
    for (std::uint64_t row0 = std::uint64_t{blockIdx.x} * kRows; row0 < problem.rows;
         row0 += std::uint64_t{gridDim.x} * kRows) {
      for (std::uint64_t out0 = std::uint64_t{blockIdx.y} * kOuts; out0 < problem.out;
           out0 += std::uint64_t{gridDim.y} * kOuts) {
        if (vectorized) {
          compute<Kind, true>(problem, place, tile, row0, out0, begin, end, with_bias);
        } else {
          compute<Kind, false>(problem, place, tile, row0, out0, begin, end, with_bias);
        }
      }
    }
  }
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    weft_linear_f32(const float* x, const float* w, const float* b, float* y, std::uint32_t rows, std::uint32_t in,
                    std::uint32_t out) {
  linear<Epilogue::store, true>({x, w, b, y, rows, in, out}, 1);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    weft_linear_relu_f32(const float* x, const float* w, const float* b, float* y, std::uint32_t rows, std::uint32_t in,
                         std::uint32_t out) {
  linear<Epilogue::relu, true>({x, w, b, y, rows, in, out}, 1);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    weft_linear_unbiased_f32(const float* x, const float* w, float* y, std::uint32_t rows, std::uint32_t in,
                             std::uint32_t out) {
  linear<Epilogue::store, false>({x, w, nullptr, y, rows, in, out}, 1);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    weft_linear_split_f32(const float* x, const float* w, const float* b, float* sum, std::uint32_t rows,
                          std::uint32_t in, std::uint32_t out, std::uint32_t splits) {
  linear<Epilogue::accumulate, true>({x, w, b, sum, rows, in, out}, splits);
}
