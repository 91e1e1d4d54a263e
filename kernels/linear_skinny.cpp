#include "gelu_reference.h"
#include "images.h"
#include "linear_problem.h"
#include "linear_skinny_tile.h"
#include "shipped_spec.h"
#include "workload.h"
#include <weft/float16.h>
#include <weft/kernels.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace weft::kernels {
namespace {

constexpr std::uint64_t kMaxSize = std::numeric_limits<std::uint32_t>::max();

/// A block a tile. Rows stand on x, the axis without a low limit; on the other the kernel strides.
LaunchRule tile_rule(std::string label) {
  return [label = std::move(label)](std::span<const std::uint64_t> workload) -> LaunchConfig {
    check_workload(label, workload, {{"rows", kMaxSize}, {"out", kMaxSize}});
    const linear_skinny_tile::Tile tile = linear_skinny_tile::tile_of(workload[0], workload[1]);
    return {.grid =
                grid(blocks_for(workload[0], tile.rows()), std::min(blocks_for(workload[1], tile.outs()), kMaxGridYZ))};
  };
}

template <class T>
void linear_skinny_reference(const HostLaunch& launch) {
  const LinearProblem<T> problem{
      launch.get<const T*>(0),     launch.get<const T*>(1),      nullptr,
      launch.get<T*>(2),           launch.get<std::uint32_t>(3), launch.get<std::uint32_t>(4),
      launch.get<std::uint32_t>(5)};
  problem.solve();
}

template <class T>
void linear_skinny_gelu_reference(const HostLaunch& launch) {
  const LinearProblem<T> problem{
      launch.get<const T*>(0),      launch.get<const T*>(1),      launch.get<const T*>(2),     launch.get<T*>(3),
      launch.get<std::uint32_t>(4), launch.get<std::uint32_t>(5), launch.get<std::uint32_t>(6)};
  problem.for_each(
      [&](std::size_t row, std::size_t column, T& y) { y = from_float<T>(gelu_of(problem.value(row, column))); });
}

KernelSpec make_spec(std::string label, DType dtype, std::vector<Parameter> parameters,
                     void (*reference)(const HostLaunch&)) {
  LaunchRule launch = tile_rule(label);
  return shipped_spec({.label = std::move(label),
                       .dtype = dtype,
                       .image = {linear_skinny_image(), "weft linear_skinny"},
                       .threads = linear_skinny_tile::kThreads,
                       .static_shared_bytes = linear_skinny_tile::kSharedBytes,
                       .parameters = std::move(parameters),
                       .launch = std::move(launch),
                       .reference = reference});
}

}  // namespace

KernelSpec linear_skinny_spec(DType dtype) {
  constexpr const char* kLabel = "linear_skinny";
  return spec_of_half_dtype(kLabel, dtype, [&]<class T>() {
    return make_spec(kLabel, dtype, parameters_of(linear_skinny<T>, {"x", "w", "y", "rows", "in", "out"}),
                     linear_skinny_reference<T>);
  });
}

KernelSpec linear_skinny_gelu_spec(DType dtype) {
  constexpr const char* kLabel = "linear_skinny_gelu";
  return spec_of_half_dtype(kLabel, dtype, [&]<class T>() {
    return make_spec(kLabel, dtype, parameters_of(linear_skinny_gelu<T>, {"x", "w", "b", "y", "rows", "in", "out"}),
                     linear_skinny_gelu_reference<T>);
  });
}

}  // namespace weft::kernels
