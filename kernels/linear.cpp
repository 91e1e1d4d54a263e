#include "images.h"
#include "linear_problem.h"
#include "linear_tile.h"
#include "shipped_spec.h"
#include "workload.h"
#include <weft/kernels.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::kernels {
namespace {

constexpr std::uint64_t kMaxSize = std::numeric_limits<std::uint32_t>::max();
constexpr WorkloadWord kRowsWord{"rows", kMaxSize};
constexpr WorkloadWord kOutWord{"out", kMaxSize};
constexpr WorkloadWord kSplitsWord{"splits", kMaxSize};

/// A block an output tile. Rows stand on x, the axis without a low limit; on the others the kernel strides.
Grid tile_grid(std::uint64_t rows, std::uint64_t out, std::uint64_t splits) {
  return {blocks_for(rows, linear_tile::kRows), std::min(blocks_for(out, linear_tile::kOuts), kMaxGridYZ),
          std::min(splits, kMaxGridYZ)};
}

LaunchRule tile_rule(std::string label) {
  return [label = std::move(label)](std::span<const std::uint64_t> workload) -> LaunchConfig {
    check_workload(label, workload, {kRowsWord, kOutWord});
    return {.grid = tile_grid(workload[0], workload[1], 1)};
  };
}

LaunchConfig split_rule(std::span<const std::uint64_t> workload) {
  check_workload("linear_split", workload, {kRowsWord, kOutWord, kSplitsWord});
  return {.grid = tile_grid(workload[0], workload[1], workload[2])};
}

using Problem = LinearProblem<float>;

Problem biased_problem(const HostLaunch& launch) {
  return {launch.get<const float*>(0), launch.get<const float*>(1),  launch.get<const float*>(2),
          launch.get<float*>(3),       launch.get<std::uint32_t>(4), launch.get<std::uint32_t>(5),
          launch.get<std::uint32_t>(6)};
}

void linear_reference(const HostLaunch& launch) { biased_problem(launch).solve(); }

void linear_relu_reference(const HostLaunch& launch) {
  const Problem problem = biased_problem(launch);
  problem.for_each([&](std::size_t row, std::size_t column, float& y) {
    const float value = problem.value(row, column);
    // Not std::max, whose answer to a NaN depends on the order of its arguments.
    y = value < 0 ? 0 : value;
  });
}

void linear_unbiased_reference(const HostLaunch& launch) {
  const Problem problem{launch.get<const float*>(0), launch.get<const float*>(1),  nullptr,
                        launch.get<float*>(2),       launch.get<std::uint32_t>(3), launch.get<std::uint32_t>(4),
                        launch.get<std::uint32_t>(5)};
  problem.solve();
}

void linear_split_reference(const HostLaunch& launch) {
  const Problem problem = biased_problem(launch);
  const std::size_t splits = launch.get<std::uint32_t>(7);
  if (splits == 0) return;
  const std::size_t columns = blocks_for(problem.in, splits);
  problem.for_each([&](std::size_t row, std::size_t column, float& sum) {
    for (std::size_t begin = 0; begin < problem.in; begin += columns) {
      const float part = problem.dot(row, column, begin, std::min<std::size_t>(begin + columns, problem.in));
      sum += begin == 0 ? part + problem.b[column] : part;
    }
  });
}

KernelSpec make_spec(std::string label, std::vector<Parameter> parameters, LaunchRule launch,
                     void (*reference)(const HostLaunch&)) {
  return shipped_spec({.label = std::move(label),
                       .image = {linear_image(), "weft linear"},
                       .threads = linear_tile::kThreads,
                       .static_shared_bytes = linear_tile::kSharedBytes,
                       .parameters = std::move(parameters),
                       .launch = std::move(launch),
                       .reference = reference});
}

}  // namespace

KernelSpec linear_spec() {
  return make_spec("linear", parameters_of(linear, {"x", "w", "b", "y", "rows", "in", "out"}), tile_rule("linear"),
                   linear_reference);
}

KernelSpec linear_relu_spec() {
  return make_spec("linear_relu", parameters_of(linear_relu, {"x", "w", "b", "y", "rows", "in", "out"}),
                   tile_rule("linear_relu"), linear_relu_reference);
}

KernelSpec linear_unbiased_spec() {
  return make_spec("linear_unbiased", parameters_of(linear_unbiased, {"x", "w", "y", "rows", "in", "out"}),
                   tile_rule("linear_unbiased"), linear_unbiased_reference);
}

KernelSpec linear_split_spec() {
  return make_spec("linear_split", parameters_of(linear_split, {"x", "w", "b", "sum", "rows", "in", "out", "splits"}),
                   split_rule, linear_split_reference);
}

}  // namespace weft::kernels
