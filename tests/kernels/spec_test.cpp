#include "catch.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/run_kernel.h"
#include <weft/kernels.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace weft::test {
namespace {

std::vector<KernelSpec> shipped_kernels() {
  return {kernels::linear_spec(),       kernels::linear_relu_spec(), kernels::linear_unbiased_spec(),
          kernels::linear_split_spec(), kernels::add_spec(),         kernels::scale_spec()};
}

}  // namespace

TEST_CASE("A split linear layer reads and writes its accumulator and others only write their output", "[kernels]") {
  CHECK(kernels::linear_spec().parameters[3].access == Access::write);
  CHECK(kernels::linear_unbiased_spec().parameters[2].access == Access::write);
  CHECK(kernels::linear_split_spec().parameters[3].access == Access::read_write);
}

TEST_CASE("A shipped kernel promises nothing about programmatic launches", "[kernels]") {
  for (const KernelSpec& spec : shipped_kernels()) {
    INFO(spec.label);
    CHECK_FALSE(spec.programmatic);
  }
}

// On the host device the two are one.
TEST_CASE("The compiled layout of every shipped kernel equals that of its host reference", "[kernels][cuda-only]") {
  const std::shared_ptr<DeviceApi> api = open_device(test_device());
  for (const KernelSpec& spec : shipped_kernels()) {
    INFO(spec.label);
    const CompiledKernel compiled = LoadedKernel(*api, spec).compiled();
    std::vector<std::uint32_t> sizes;
    for (const auto& parameter : compiled.parameters) sizes.push_back(parameter.size);
    CHECK(sizes == spec.host->parameter_sizes);
    CHECK(compiled.max_threads_per_block == spec.host->max_threads_per_block);
    CHECK(compiled.static_shared_bytes == spec.host->static_shared_bytes);
  }
}

}  // namespace weft::test
