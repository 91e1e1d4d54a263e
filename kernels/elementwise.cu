#include "device_code.h"
#include "elementwise_block.h"

#include <cstdint>

// Each thread takes vectors of four floats where every pointer is aligned to one, single floats elsewhere, and strides
// by the whole grid: the grid bounds the parallelism, not the count.

namespace {

using namespace weft::kernels::elementwise_block;
using weft::kernels::is_vector_aligned;
using weft::kernels::wait_for_dependencies;

/// y[i] = operation(i-th elements of the sources), for i < count.
template <class Operation, class... Source>
__device__ void apply(std::uint64_t count, float* y, Operation operation, const Source*... sources) {
  wait_for_dependencies();
  const std::uint64_t first = std::uint64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::uint64_t stride = std::uint64_t{gridDim.x} * kThreads;
  std::uint64_t done = 0;
  if (is_vector_aligned(y) && (is_vector_aligned(sources) && ...)) {
    const std::uint64_t vectors = count / kVector;
    const auto apply_vector = [&](std::uint64_t i, auto... values) {
      reinterpret_cast<float4*>(y)[i] = {operation(values.x...), operation(values.y...), operation(values.z...),
                                         operation(values.w...)};
    };
    for (std::uint64_t i = first; i < vectors; i += stride) {
      apply_vector(i, reinterpret_cast<const float4*>(sources)[i]...);
    }
    done = vectors * kVector;
  }
  for (std::uint64_t i = done + first; i < count; i += stride) y[i] = operation(sources[i]...);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads)
    weft_add_f32(const float* a, const float* b, float* y, std::uint64_t count) {
  apply(
      count, y, [](float left, float right) { return left + right; }, a, b);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    weft_scale_f32(const float* x, float* y, float factor, std::uint64_t count) {
  apply(
      count, y, [factor](float value) { return value * factor; }, x);
}
