#include "catch.h"
#include "cuda/device_bytes.h"
#include "cuda/gpu.h"
#include "cuda/linear_oracle.h"
#include "support/run_kernel.h"
#include <weft/kernels.h>

#include <cstdint>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kSeed = 61;
constexpr std::uint64_t kGuardBytes = 4096;

/// Runs one layer with operands of the device's own making and checks it there; what follows y must stay as it was.
void compute_and_verify(std::uint32_t rows, std::uint32_t in, std::uint32_t out) {
  const Gpu gpu;
  const std::uint64_t x_count = std::uint64_t{rows} * in;
  const std::uint64_t w_count = std::uint64_t{out} * in;
  const std::uint64_t y_bytes = std::uint64_t{rows} * out * sizeof(float);
  const LinearOperands operands{.x = gpu.allocate(x_count * sizeof(float)),
                                .w = gpu.allocate(w_count * sizeof(float)),
                                .b = gpu.allocate(out * sizeof(float)),
                                .y = gpu.allocate(y_bytes + kGuardBytes),
                                .rows = rows,
                                .in = in,
                                .out = out};
  must(gpu.api->fill(gpu.stream, {operands.y, y_bytes, 0xFF}));  // NaN throughout.
  must(gpu.api->synchronize_stream(gpu.stream));
  write_random_floats(operands.x, x_count, kSeed);
  write_random_floats(operands.w, w_count, kSeed + x_count);
  write_random_floats(operands.b, out, kSeed + x_count + w_count);
  write_pattern(operands.y + y_bytes, kGuardBytes, kSeed);

  const KernelSpec spec = kernels::linear_spec();
  LoadedKernel(*gpu.api, spec)
      .run(gpu.stream, spec.launch(std::vector<std::uint64_t>{rows, out}),
           {Scalar(operands.x), Scalar(operands.w), Scalar(operands.b), Scalar(operands.y), Scalar(rows), Scalar(in),
            Scalar(out)});

  // The bound of tests/kernels/linear_test.cpp.
  CHECK(linear_error(operands) <= 4);
  CHECK(pattern_mismatches(operands.y + y_bytes, 0, kGuardBytes, kSeed) == 0);

  for (const DeviceAddress address : {operands.x, operands.w, operands.b, operands.y}) {
    must(gpu.api->free(gpu.stream, address));
  }
  must(gpu.api->synchronize_stream(gpu.stream));
  must(gpu.api->trim(0));
}

TEST_CASE("A linear layer of thousands of rows equals a naive one in float64", "[cuda][kernels][cuda-only][big]") {
  INFO("seed " << kSeed);
  SECTION("with vector loads") { compute_and_verify(4096, 1024, 4096); }
  SECTION("with odd widths") { compute_and_verify(4097, 1001, 2051); }
}

TEST_CASE("A linear layer of more than 2^32 elements is computed to its end", "[cuda][kernels][cuda-only][big]") {
  INFO("seed " << kSeed);
  compute_and_verify((1u << 22) + 9, 3, 1025);
}

}  // namespace
}  // namespace weft::test
