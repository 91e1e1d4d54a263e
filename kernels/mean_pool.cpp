#include "images.h"
#include "mean_pool_block.h"
#include "shipped_spec.h"
#include "tokens.h"
#include "workload.h"
#include <weft/float16.h>
#include <weft/kernels.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace weft::kernels {
namespace {

constexpr double kSmallestNorm = 1e-12;

LaunchConfig sequence_rule(std::span<const std::uint64_t> workload) {
  check_workload("mean_pool", workload, {{"batch", std::numeric_limits<std::uint32_t>::max()}});
  return {.grid = grid(std::min(workload[0], kMaxStridingBlocks))};
}

template <class T>
void mean_pool_reference(const HostLaunch& launch) {
  const auto* x = launch.get<const T*>(0);
  const auto* lengths = launch.get<const std::int32_t*>(1);
  auto* y = launch.get<float*>(2);
  const auto sequence = launch.get<std::uint32_t>(4);
  const std::size_t columns = launch.get<std::uint32_t>(5);
  for (std::size_t item = 0; item < launch.get<std::uint32_t>(3); ++item) {
    const std::size_t tokens = tokens_of(lengths[item], sequence);
    std::vector<double> mean(columns);
    double squares = 0;
    for (std::size_t i = 0; i < columns && tokens > 0; ++i) {
      for (std::size_t token = 0; token < tokens; ++token) {
        mean[i] += to_float(x[(item * sequence + token) * columns + i]);
      }
      mean[i] /= static_cast<double>(tokens);
      squares += mean[i] * mean[i];
    }
    const double norm = std::sqrt(squares);
    for (std::size_t i = 0; i < columns; ++i) {
      // Not std::max, whose answer to a NaN depends on the order of its arguments.
      y[item * columns + i] = static_cast<float>(mean[i] / (norm < kSmallestNorm ? kSmallestNorm : norm));
    }
  }
}

}  // namespace

KernelSpec mean_pool_spec(DType dtype) {
  return spec_of_dtype("mean_pool", dtype, [dtype]<class T>() {
    return shipped_spec(
        {.label = "mean_pool",
         .dtype = dtype,
         .image = {mean_pool_image(), "weft mean pool"},
         .threads = mean_pool_block::kThreads,
         .static_shared_bytes = mean_pool_block::kSharedBytes,
         .parameters = parameters_of(mean_pool<T>, {"x", "lengths", "y", "batch", "sequence", "columns"}),
         .launch = sequence_rule,
         .reference = mean_pool_reference<T>});
  });
}

}  // namespace weft::kernels
