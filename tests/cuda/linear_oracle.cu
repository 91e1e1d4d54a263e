#include "cuda/linear_oracle.h"

#include <thrust/execution_policy.h>
#include <thrust/functional.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/tabulate.h>
#include <thrust/transform_reduce.h>

#include <cmath>

namespace weft::test {
namespace {

struct RandomFloat {
  std::uint64_t seed;
  __host__ __device__ float operator()(std::uint64_t i) const {
    std::uint64_t mixed = (i + seed) * 0x9E3779B97F4A7C15ull;
    mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9ull;
    mixed ^= mixed >> 27;
    return static_cast<float>(mixed >> 40) * 0x1p-23f - 1.0f;
  }
};

struct Squares {
  double error = 0;
  double norm = 0;
};

struct Add {
  __host__ __device__ Squares operator()(Squares left, Squares right) const {
    return {left.error + right.error, left.norm + right.norm};
  }
};

struct NaiveElement {
  const float* x;
  const float* w;
  const float* b;
  const float* y;
  std::uint64_t in;
  std::uint64_t out;
  __host__ __device__ Squares operator()(std::uint64_t i) const {
    const std::uint64_t row = i / out;
    const std::uint64_t column = i % out;
    double exact = b[column];
    double norm = fabs(exact);
    for (std::uint64_t k = 0; k < in; ++k) {
      const double term = static_cast<double>(x[row * in + k]) * w[column * in + k];
      exact += term;
      norm += fabs(term);
    }
    const double error = y[i] - exact;
    return {error * error, norm * norm};
  }
};

const float* floats(std::uint64_t address) { return reinterpret_cast<const float*>(address); }

}  // namespace

void write_random_floats(std::uint64_t address, std::uint64_t count, std::uint64_t seed) {
  auto* begin = reinterpret_cast<float*>(address);
  thrust::tabulate(thrust::device, begin, begin + count, RandomFloat{seed});
}

double linear_error(const LinearOperands& operands) {
  const NaiveElement naive{floats(operands.x), floats(operands.w), floats(operands.b),
                           floats(operands.y), operands.in,        operands.out};
  const thrust::counting_iterator<std::uint64_t> begin(0);
  const Squares squares = thrust::transform_reduce(
      thrust::device, begin, begin + std::uint64_t{operands.rows} * operands.out, naive, Squares{}, Add{});
  return std::sqrt(squares.error / squares.norm) * 0x1p24;
}

}  // namespace weft::test
