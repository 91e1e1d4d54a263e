#include "device_code.h"
#include "linear_skinny_tile.h"
#include "matrix_instructions.h"

#include <cstdint>

// y = x w^T for few rows, on the tensor cores. Such a layer takes as long as it takes to bring w from the L2 cache, so
// everything serves to have as many reads in flight as there are: many small blocks, whose warps divide the inner
// columns, and no shared memory on the way.
//
// Operands go from memory into the registers of the matrix instructions. A lane holds of a row the columns pair,
// pair + 1, pair + 8 and pair + 9 of 16, which are no 16 bytes. But a sum does not ask which column is called the
// first, as long as x and w agree: so four neighbouring lanes read 32 columns, 8 each in 16 bytes, and call the first
// 4 of all lanes one step and the last 4 another.

namespace {

using namespace weft::kernels;
using namespace weft::kernels::linear_skinny_tile;

constexpr std::uint32_t kWarps = kThreads / kWarpLanes;
constexpr std::uint32_t kChunk = 32;  // inner columns that a warp reads of each row at once
constexpr std::uint32_t kLaneColumns = 8;

template <class T>
struct Problem {
  const T* x;
  const T* w;
  const T* b;
  T* y;
  std::uint32_t rows;
  std::uint32_t in;
  std::uint32_t out;
};

/// How the warps of a block share its tile. Each takes RowMatrices x OutMatrices matrices of 16 x 8; the warps that
/// this leaves divide the chunks of the inner columns.
template <std::uint32_t RowMatrices, std::uint32_t OutMatrices, std::uint32_t RowWarps, std::uint32_t OutWarps,
          std::uint32_t Ahead>
struct Shape {
  static constexpr std::uint32_t kRowMatrices = RowMatrices;
  static constexpr std::uint32_t kOutMatrices = OutMatrices;
  static constexpr std::uint32_t kRowWarps = RowWarps;
  static constexpr std::uint32_t kOutWarps = OutWarps;
  static constexpr std::uint32_t kInnerWarps = kWarps / (RowWarps * OutWarps);
  static constexpr std::uint32_t kAhead = Ahead;  // chunks in flight
  /// Sums of a matrix, which alternate: an instruction waits for the one before it on the same sum.
  static constexpr std::uint32_t kSums = RowMatrices * OutMatrices > 1 ? 1 : 2;
  static constexpr std::uint32_t kRows = RowWarps * RowMatrices * 16;
  static constexpr std::uint32_t kOuts = OutWarps * OutMatrices * 8;

  // Of the matrices in shared memory: padded so that a warp that reads a tile's rows meets every bank once.
  static constexpr std::uint32_t kMatrixFloats = 16 * 8 + 256 / kOuts;
  static constexpr std::uint32_t kTileMatrices = kRows / 16 * (kOuts / 8);
  static_assert(kInnerWarps * kTileMatrices * kMatrixFloats * sizeof(float) <= kSharedBytes);
};

using SmallShape = Shape<1, 1, 1, 1, 6>;
using MediumShape = Shape<2, 2, 1, 1, 2>;
using LargeShape = Shape<2, 2, 2, 2, 2>;
using UnalignedShape = Shape<1, 1, 1, 1, 1>;

template <class Shape, std::uint32_t Size>
inline constexpr bool kIsTile = Shape::kRows == Tile{Size}.rows() && Shape::kOuts == Tile{Size}.outs();
static_assert(kIsTile<SmallShape, 0> && kIsTile<MediumShape, 1> && kIsTile<LargeShape, 2>);

/// Where a warp and a lane stand in the tile.
template <class Shape>
struct Place {
  std::uint32_t lane = threadIdx.x % kWarpLanes;
  std::uint32_t row = lane / 4;
  std::uint32_t quarter = lane % 4;
  std::uint32_t warp = threadIdx.x / kWarpLanes;
  std::uint32_t out_warp = warp % Shape::kOutWarps;
  std::uint32_t row_warp = warp / Shape::kOutWarps % Shape::kRowWarps;
  std::uint32_t inner_warp = warp / (Shape::kOutWarps * Shape::kRowWarps);
};

/// A lane's columns of the row at `columns`, of which `left` are there; zeros for the rest.
template <bool Vectorized, class T>
__device__ void load_columns(const T* columns, std::uint32_t left, std::uint32_t (&pairs)[kLaneColumns / 2]) {
  static_assert(kLaneColumns == kVectorOf<T>);
  uint4 vector{};
  if constexpr (Vectorized) {
    if (left > 0) vector = *reinterpret_cast<const uint4*>(columns);
  } else {
    auto* elements = reinterpret_cast<T*>(&vector);
#pragma unroll
    for (std::uint32_t i = 0; i < kLaneColumns; ++i) {
      if (i < left) elements[i] = columns[i];
    }
  }
  pairs[0] = vector.x;
  pairs[1] = vector.y;
  pairs[2] = vector.z;
  pairs[3] = vector.w;
}

/// A lane's part of a chunk.
template <class Shape>
struct Chunk {
  std::uint32_t x[Shape::kRowMatrices][2][kLaneColumns / 2];  // [1] is 8 rows below
  std::uint32_t w[Shape::kOutMatrices][kLaneColumns / 2];
};

template <class Shape>
using Sums = MatrixC[Shape::kSums][Shape::kRowMatrices][Shape::kOutMatrices];

template <class T, class Shape>
__device__ void multiply_chunk(const Chunk<Shape>& chunk, Sums<Shape>& sums) {
#pragma unroll
  for (std::uint32_t step = 0; step < 2; ++step) {
#pragma unroll
    for (std::uint32_t i = 0; i < Shape::kRowMatrices; ++i) {
      const auto& x = chunk.x[i];
      const MatrixA a = {x[0][step * 2], x[1][step * 2], x[0][step * 2 + 1], x[1][step * 2 + 1]};
#pragma unroll
      for (std::uint32_t j = 0; j < Shape::kOutMatrices; ++j) {
        const MatrixB b = {chunk.w[j][step * 2], chunk.w[j][step * 2 + 1]};
        multiply<T>(a, b, sums[step % Shape::kSums][i][j]);
      }
    }
  }
}

/// Where element (row, column) of a matrix stands.
__device__ std::uint64_t element_of(std::uint32_t row, std::uint32_t width, std::uint32_t column) {
  return std::uint64_t{row} * width + column;
}

/// A row of x or w, from the first column that a lane reads on.
template <class T>
struct Row {
  const T* columns;
  bool inside;
};

/// What a lane reads for the tile at (row0, out0): places alone, so that they are reckoned before the wait.
template <class Shape, class T>
struct Operands {
  Row<T> x[Shape::kRowMatrices][2];  // [1] is 8 rows below
  Row<T> w[Shape::kOutMatrices];

  __device__ Operands(const Problem<T>& problem, const Place<Shape>& place, std::uint32_t row0, std::uint32_t out0) {
    const std::uint32_t column = place.inner_warp * kChunk + place.quarter * kLaneColumns;
#pragma unroll
    for (std::uint32_t i = 0; i < Shape::kRowMatrices; ++i) {
#pragma unroll
      for (std::uint32_t half = 0; half < 2; ++half) {
        const std::uint32_t row = row0 + (place.row_warp * Shape::kRowMatrices + i) * 16 + half * 8 + place.row;
        x[i][half] = {problem.x + element_of(row, problem.in, column), row < problem.rows};
      }
    }
#pragma unroll
    for (std::uint32_t j = 0; j < Shape::kOutMatrices; ++j) {
      const std::uint32_t row = out0 + (place.out_warp * Shape::kOutMatrices + j) * 8 + place.row;
      w[j] = {problem.w + element_of(row, problem.in, column), row < problem.out};
    }
  }

  __device__ void advance(std::uint32_t columns) {
#pragma unroll
    for (std::uint32_t i = 0; i < Shape::kRowMatrices; ++i) {
      x[i][0].columns += columns;
      x[i][1].columns += columns;
    }
#pragma unroll
    for (std::uint32_t j = 0; j < Shape::kOutMatrices; ++j) w[j].columns += columns;
  }
};

/// The warp's part of the tile, over its share of the `in` inner columns.
template <bool Vectorized, class Shape, class T>
__device__ void multiply_share(Operands<Shape, T>& operands, const Place<Shape>& place, std::uint32_t in,
                               Sums<Shape>& sums) {
  constexpr std::uint32_t kStride = Shape::kInnerWarps * kChunk;
  constexpr std::uint32_t kStep = kStride * Shape::kAhead;
  const std::uint32_t first = place.inner_warp * kChunk;
  const std::uint32_t offset = place.quarter * kLaneColumns;  // of the lane in a chunk
  if (first >= in) return;

#pragma unroll 1
  for (std::uint32_t left = in - first;; left -= kStep) {
    // All reads before the first product, so that they share one latency.
    Chunk<Shape> chunks[Shape::kAhead];
#pragma unroll
    for (std::uint32_t n = 0; n < Shape::kAhead; ++n) {
      if (left <= n * kStride) break;
      const std::uint32_t chunk_left = left - n * kStride;
      const std::uint32_t lane_left = chunk_left > offset ? chunk_left - offset : 0;
      const auto load = [&](const Row<T>& row, std::uint32_t(&pairs)[kLaneColumns / 2]) {
        load_columns<Vectorized>(row.columns + n * kStride, row.inside ? lane_left : 0, pairs);
      };
#pragma unroll
      for (std::uint32_t j = 0; j < Shape::kOutMatrices; ++j) load(operands.w[j], chunks[n].w[j]);
#pragma unroll
      for (std::uint32_t i = 0; i < Shape::kRowMatrices; ++i) {
        load(operands.x[i][0], chunks[n].x[i][0]);
        load(operands.x[i][1], chunks[n].x[i][1]);
      }
    }
#pragma unroll
    for (std::uint32_t n = 0; n < Shape::kAhead; ++n) {
      if (left <= n * kStride) break;
      multiply_chunk<T, Shape>(chunks[n], sums);
    }
    if (left <= kStep) break;
    operands.advance(kStep);
  }
}

/// Leaves the warp's matrices in shared memory, those of a row of the tile side by side.
template <class Shape>
__device__ void share_sums(const Place<Shape>& place, const Sums<Shape>& sums, float* shared) {
  float* tile = shared + place.inner_warp * (Shape::kTileMatrices * Shape::kMatrixFloats);
#pragma unroll
  for (std::uint32_t i = 0; i < Shape::kRowMatrices; ++i) {
#pragma unroll
    for (std::uint32_t j = 0; j < Shape::kOutMatrices; ++j) {
      const std::uint32_t row_matrix = place.row_warp * Shape::kRowMatrices + i;
      const std::uint32_t out_matrix = place.out_warp * Shape::kOutMatrices + j;
      float* matrix = tile + (row_matrix * (Shape::kOuts / 8) + out_matrix) * Shape::kMatrixFloats;
#pragma unroll
      for (std::uint32_t half = 0; half < 2; ++half) {
        float2 pair{};
#pragma unroll
        for (std::uint32_t sum = 0; sum < Shape::kSums; ++sum) {
          pair.x += sums[sum][i][j][half * 2];
          pair.y += sums[sum][i][j][half * 2 + 1];
        }
        *reinterpret_cast<float2*>(matrix + (half * 8 + place.row) * 8 + place.quarter * 2) = pair;
      }
    }
  }
}

/// Element (row, out) of the tile: what the warps found, added in their order.
template <class Shape>
__device__ float add_sums(const float* shared, std::uint32_t row, std::uint32_t out) {
  const std::uint32_t matrix = row / 16 * (Shape::kOuts / 8) + out / 8;
  const float* part = shared + matrix * Shape::kMatrixFloats + row % 16 * 8 + out % 8;
  float sum = 0;
#pragma unroll
  for (std::uint32_t warp = 0; warp < Shape::kInnerWarps; ++warp) {
    sum += part[warp * (Shape::kTileMatrices * Shape::kMatrixFloats)];
  }
  return sum;
}

/// The tile of y at (row0, out0).
template <bool WithGelu, bool Vectorized, class Shape, class T>
__device__ void compute(const Problem<T>& problem, Operands<Shape, T>& operands, const Place<Shape>& place,
                        std::uint32_t row0, std::uint32_t out0, float* shared) {
  constexpr std::uint32_t kRowsAtOnce = kThreads / Shape::kOuts;
  const std::uint32_t tile_out = threadIdx.x % Shape::kOuts;
  const std::uint32_t tile_row = threadIdx.x / Shape::kOuts;
  const std::uint32_t out = out0 + tile_out;
  // Early, so that its latency hides behind that of the operands.
  float bias = 0;
  if constexpr (WithGelu) bias = out < problem.out ? to_float(problem.b[out]) : 0.0f;

  Sums<Shape> sums = {};
  multiply_share<Vectorized>(operands, place, problem.in, sums);
  share_sums(place, sums, shared);
  __syncthreads();
#pragma unroll
  for (std::uint32_t begin = 0; begin < Shape::kRows; begin += kRowsAtOnce) {
    const std::uint32_t in_tile = begin + tile_row;
    const std::uint32_t row = row0 + in_tile;
    if (in_tile >= Shape::kRows || row >= problem.rows || out >= problem.out) break;
    const float value = add_sums<Shape>(shared, in_tile, tile_out);
    problem.y[element_of(row, problem.out, out)] = from_float<T>(WithGelu ? gelu_of(value + bias) : value);
  }
}

/// The whole problem, whatever the grid is; the launch rule gives each block one tile where the grid's axes allow it.
/// Waits for the dependencies.
template <bool WithGelu, bool Vectorized, class Shape, class T>
__device__ void compute_tiles(const Problem<T>& problem, float* shared) {
  // Where a tile starts fits into 32 bits, and so does where it ends, since its sides are powers of two.
  const Place<Shape> place;
  const std::uint64_t first_row = std::uint64_t{blockIdx.x} * Shape::kRows;
  const std::uint64_t first_out = std::uint64_t{blockIdx.y} * Shape::kOuts;
  auto row0 = static_cast<std::uint32_t>(first_row);
  auto out0 = static_cast<std::uint32_t>(first_out);
  Operands<Shape, T> operands(problem, place, row0, out0);
  wait_for_dependencies();
  if (first_row >= problem.rows || first_out >= problem.out) return;
  for (;;) {
    compute<WithGelu, Vectorized>(problem, operands, place, row0, out0, shared);
    const std::uint64_t next_out = out0 + std::uint64_t{gridDim.y} * Shape::kOuts;
    out0 = static_cast<std::uint32_t>(next_out);
    if (next_out >= problem.out) {
      const std::uint64_t next_row = row0 + std::uint64_t{gridDim.x} * Shape::kRows;
      if (next_row >= problem.rows) return;
      row0 = static_cast<std::uint32_t>(next_row);
      out0 = static_cast<std::uint32_t>(first_out);
    }
    operands = Operands<Shape, T>(problem, place, row0, out0);
    __syncthreads();  // before the sums of this tile are overwritten
  }
}

template <bool WithGelu, class T>
__device__ void linear_skinny(const Problem<T>& problem) {
  __shared__ alignas(16) float shared[kSharedBytes / sizeof(float)];
  const Tile tile = tile_of(problem.rows, problem.out);
  const bool vectorized =
      problem.in % kVectorOf<T> == 0 && is_vector_aligned(problem.x) && is_vector_aligned(problem.w);
  if (!vectorized) {
    compute_tiles<WithGelu, false, UnalignedShape>(problem, shared);
  } else if (tile.size == 2) {
    compute_tiles<WithGelu, true, LargeShape>(problem, shared);
  } else if (tile.size == 1) {
    compute_tiles<WithGelu, true, MediumShape>(problem, shared);
  } else {
    compute_tiles<WithGelu, true, SmallShape>(problem, shared);
  }
}

}  // namespace

// At least two blocks a multiprocessor, so that those of the next kernel find room while they wait.
#define WEFT_LINEAR_SKINNY(dtype, T)                                                                       \
  extern "C" __global__ void __launch_bounds__(kThreads, 2) weft_linear_skinny_##dtype(                    \
      const T* x, const T* w, T* y, std::uint32_t rows, std::uint32_t in, std::uint32_t out) {             \
    linear_skinny<false>(Problem<T>{x, w, nullptr, y, rows, in, out});                                     \
  }                                                                                                        \
  extern "C" __global__ void __launch_bounds__(kThreads, 2) weft_linear_skinny_gelu_##dtype(               \
      const T* x, const T* w, const T* b, T* y, std::uint32_t rows, std::uint32_t in, std::uint32_t out) { \
    linear_skinny<true>(Problem<T>{x, w, b, y, rows, in, out});                                            \
  }

WEFT_LINEAR_SKINNY(f16, __half)
WEFT_LINEAR_SKINNY(bf16, __nv_bfloat16)
