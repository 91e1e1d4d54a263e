#include "catch.h"
#include "kernels/guarded_buffer.h"
#include "support/run_kernel.h"
#include <weft/kernels.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kSeed = 77;

// The last passes the launch rule's cap of blocks, with three elements beyond the vectors.
constexpr std::uint64_t kCounts[] = {1, 2, 3, 4, 5, 1023, 1024, 1025, 4096 * 1024 + 1031};

/// Calls `body(count, shift, seed)`; shifted by one float, nothing is aligned to 16 bytes.
template <class Body>
void for_each_count(Body&& body) {
  std::uint64_t seed = kSeed;
  for (const std::uint64_t count : kCounts) {
    for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
      INFO("count " << count << " shift " << shift << " seed " << ++seed);
      body(count, shift, seed);
    }
  }
}

/// How many elements of `y` are not the float that `expected(i)` gives.
template <class Expected>
std::size_t mismatches(std::span<const float> y, Expected&& expected) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < y.size(); ++i) wrong += static_cast<std::size_t>(y[i] != expected(i));
  return wrong;
}

}  // namespace

// One rounding each, so equal and not near.
TEST_CASE("Add gives the sum of each pair", "[kernels]") {
  for_each_count([](std::uint64_t count, std::size_t shift, std::uint64_t seed) {
    RandomFloats random(seed);
    GuardedFloats a(random.take(count), shift);
    GuardedFloats b(random.take(count), shift);
    GuardedFloats y = GuardedFloats::poisoned(count, shift);
    run_kernel(kernels::add_spec(), workload(count), {a.argument(), b.argument(), y.argument(), Scalar(count)});
    CHECK(mismatches(y.operand(), [&](std::size_t i) { return a.operand()[i] + b.operand()[i]; }) == 0);
    CHECK(a.guards_intact());
    CHECK(b.guards_intact());
    CHECK(y.guards_intact());
  });
}

TEST_CASE("Scale gives the product of each element", "[kernels]") {
  for_each_count([](std::uint64_t count, std::size_t shift, std::uint64_t seed) {
    constexpr float kFactor = -1.7f;
    GuardedFloats x(RandomFloats(seed).take(count), shift);
    GuardedFloats y = GuardedFloats::poisoned(count, shift);
    run_kernel(kernels::scale_spec(), workload(count), {x.argument(), y.argument(), Scalar(kFactor), Scalar(count)});
    CHECK(mismatches(y.operand(), [&](std::size_t i) { return x.operand()[i] * kFactor; }) == 0);
    CHECK(x.guards_intact());
    CHECK(y.guards_intact());
  });
}

TEST_CASE("An elementwise kernel is whole with any grid", "[kernels]") {
  std::vector<float> x = RandomFloats(kSeed).take(5000);
  std::vector<float> y(5000, -9.0f);
  run_kernel(kernels::scale_spec(), LaunchConfig{grid(1)},
             {buffer(x), buffer(y), Scalar(2.0f), Scalar(std::uint64_t{5000})});
  CHECK(mismatches(y, [&](std::size_t i) { return x[i] * 2.0f; }) == 0);
}

}  // namespace weft::test
