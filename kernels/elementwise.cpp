#include "elementwise_block.h"
#include "images.h"
#include "shipped_spec.h"
#include "workload.h"
#include <weft/kernels.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace weft::kernels {
namespace {

LaunchRule count_rule(std::string label) {
  return [label = std::move(label)](std::span<const std::uint64_t> workload) -> LaunchConfig {
    check_workload(label, workload, {{"count", std::numeric_limits<std::uint64_t>::max() / sizeof(float)}});
    return {.grid = grid(std::min(blocks_for(workload[0], elementwise_block::kElements), kMaxStridingBlocks))};
  };
}

void add_reference(const HostLaunch& launch) {
  const auto* a = launch.get<const float*>(0);
  const auto* b = launch.get<const float*>(1);
  auto* y = launch.get<float*>(2);
  const auto count = launch.get<std::uint64_t>(3);
  for (std::uint64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
}

void scale_reference(const HostLaunch& launch) {
  const auto* x = launch.get<const float*>(0);
  auto* y = launch.get<float*>(1);
  const auto factor = launch.get<float>(2);
  const auto count = launch.get<std::uint64_t>(3);
  for (std::uint64_t i = 0; i < count; ++i) y[i] = x[i] * factor;
}

KernelSpec make_spec(std::string label, std::vector<Parameter> parameters, void (*reference)(const HostLaunch&)) {
  LaunchRule launch = count_rule(label);
  return shipped_spec({.label = std::move(label),
                       .image = {elementwise_image(), "weft elementwise"},
                       .threads = elementwise_block::kThreads,
                       .parameters = std::move(parameters),
                       .launch = std::move(launch),
                       .reference = reference});
}

}  // namespace

KernelSpec add_spec() { return make_spec("add", parameters_of(add, {"a", "b", "y", "count"}), add_reference); }

KernelSpec scale_spec() {
  return make_spec("scale", parameters_of(scale, {"x", "y", "factor", "count"}), scale_reference);
}

}  // namespace weft::kernels
