#include "elementwise_block.h"
#include "gelu_reference.h"
#include "images.h"
#include "shipped_spec.h"
#include "workload.h"
#include <weft/float16.h>
#include <weft/kernels.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace weft::kernels {
namespace {

constexpr std::uint64_t kMaxSize = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kVectorBytes = 16;

template <class T>
LaunchConfig element_rule(std::span<const std::uint64_t> workload) {
  check_workload("gelu", workload, {{"rows", kMaxSize}, {"columns", kMaxSize}});
  constexpr std::uint64_t kElements = elementwise_block::kThreads * (kVectorBytes / sizeof(T));
  return {.grid = grid(std::min(blocks_for(workload[0] * workload[1], kElements), kMaxStridingBlocks))};
}

template <class T>
void gelu_reference(const HostLaunch& launch) {
  const auto* x = launch.get<const T*>(0);
  const auto* bias = launch.get<const T*>(1);
  auto* y = launch.get<T*>(2);
  const std::size_t columns = launch.get<std::uint32_t>(4);
  for (std::size_t begin = 0; begin < launch.get<std::uint32_t>(3) * columns; begin += columns) {
    for (std::size_t i = 0; i < columns; ++i) {
      y[begin + i] = from_float<T>(gelu_of(to_float(x[begin + i]) + to_float(bias[i])));
    }
  }
}

}  // namespace

KernelSpec gelu_spec(DType dtype) {
  return spec_of_dtype("gelu", dtype, [dtype]<class T>() {
    return shipped_spec({.label = "gelu",
                         .dtype = dtype,
                         .image = {gelu_image(), "weft gelu"},
                         .threads = elementwise_block::kThreads,
                         .parameters = parameters_of(gelu<T>, {"x", "bias", "y", "rows", "columns"}),
                         .launch = element_rule<T>,
                         .reference = gelu_reference<T>});
  });
}

}  // namespace weft::kernels
