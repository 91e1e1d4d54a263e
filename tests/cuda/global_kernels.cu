#include "cuda/global_kernels.h"
#include <weft/cuda.h>

#include <cstdint>

namespace weft::test {

namespace {

struct Pair {
  std::uint16_t a;
  std::uint64_t b;
};

template <class T>
__global__ void __launch_bounds__(64) add_constant(const T* x, T* y, std::uint64_t count, T constant) {
  for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) y[i] = x[i] + constant;
}

__global__ void add_pair(std::uint64_t* y, Pair pair) { y[0] = pair.a + pair.b; }

void no_kernel(std::uint64_t*) {}

}  // namespace

KernelSpec add_constant_spec() {
  return kernel(&add_constant<std::uint32_t>, {.label = "add_constant", .block = {64, 1, 1}});
}

KernelSpec add_constant_64_spec() {
  return kernel(&add_constant<std::uint64_t>, {.label = "add_constant", .block = {64, 1, 1}});
}

KernelSpec add_pair_spec() { return kernel(&add_pair, {.label = "add_pair"}); }

KernelSpec no_kernel_spec() { return kernel(&no_kernel, {.label = "no_kernel"}); }

}  // namespace weft::test
