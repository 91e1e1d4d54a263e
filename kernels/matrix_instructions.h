#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

// The instructions of the tensor cores that attention uses, for device code alone. Each is called by whole warps, and a
// lane stands for a place in each matrix: with row = lane / 4 and pair = 2 (lane % 4), it holds
// - of A, 16 x 16: two neighbours from (row, pair), (row + 8, pair), (row, pair + 8) and (row + 8, pair + 8),
// - of B, 16 x 8: (pair, row) and (pair + 1, row), then (pair + 8, row) and (pair + 9, row),
// - of C, 16 x 8 in f32: (row, pair), (row, pair + 1), (row + 8, pair) and (row + 8, pair + 1).

namespace weft::kernels {

using MatrixA = std::uint32_t[4];
using MatrixB = std::uint32_t[2];
using MatrixC = float[4];

/// c += a b.
template <class T>
__device__ void multiply(const MatrixA& a, const MatrixB& b, MatrixC& c);

template <>
__device__ inline void multiply<__half>(const MatrixA& a, const MatrixB& b, MatrixC& c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <>
__device__ inline void multiply<__nv_bfloat16>(const MatrixA& a, const MatrixB& b, MatrixC& c) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/// Reads four 8 x 8 matrices of 2-byte elements from shared memory. Lane 8 i + j gives where row j of matrix i starts,
/// a multiple of 16 bytes; of matrix i, part i / 2 of `b` at i % 2 becomes (row, pair) and (row, pair + 1).
__device__ inline void load_matrices(const void* row, MatrixB (&b)[2]) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0][0]), "=r"(b[0][1]), "=r"(b[1][0]), "=r"(b[1][1])
               : "r"(address)
               : "memory");
}

/// The same, each matrix transposed: (pair, row) and (pair + 1, row).
__device__ inline void load_transposed_matrices(const void* row, MatrixB (&b)[2]) {
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b[0][0]), "=r"(b[0][1]), "=r"(b[1][0]), "=r"(b[1][1])
               : "r"(address)
               : "memory");
}

/// 2^x, to 22 bits.
__device__ inline float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace weft::kernels
