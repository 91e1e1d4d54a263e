#include "catch.h"
#include "kernels/float_elements.h"
#include "kernels/guarded_buffer.h"
#include "support/run_kernel.h"
#include <weft/kernels.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kSeed = 7300;

struct Size {
  std::uint32_t rows;
  std::uint32_t columns;
};

template <class T>
double gelu_error(Size size, std::uint64_t seed, std::size_t shift, std::optional<Grid> grid = {}) {
  const std::size_t count = std::size_t{size.rows} * size.columns;
  RandomFloats random(seed);
  GuardedBuffer<T> x(random_elements<T>(random, count, 4), shift);
  GuardedBuffer<T> bias(random_elements<T>(random, size.columns), shift);
  auto y = GuardedBuffer<T>::poisoned(count, shift);
  const KernelSpec spec = kernels::gelu_spec(DTypeOf<T>::value);
  const std::vector<std::uint64_t> words{size.rows, size.columns};
  run_kernel(spec, grid ? LaunchConfig{*grid} : spec.launch(words),
             {x.argument(), bias.argument(), y.argument(), Scalar(size.rows), Scalar(size.columns)});
  CHECK(x.guards_intact());
  CHECK(bias.guards_intact());
  CHECK(y.guards_intact());

  std::vector<double> exact;
  for (std::size_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(to_float(x.operand()[i])) + to_float(bias.operand()[i % size.columns]);
    exact.push_back(value / 2 * std::erfc(-value / std::sqrt(2.0)));
  }
  return relative_error<T>(y.operand(), exact);
}

}  // namespace

TEST_CASE("A gelu of a sum with bias equals float64 at every size", "[kernels]") {
  for_each_float([]<class T>() {
    std::uint64_t seed = kSeed;
    for (const Size& size :
         {Size{1, 1}, Size{3, 5}, Size{33, 96}, Size{16, 1536}, Size{2, 4099}, Size{1031, 8}, Size{300, 1000}}) {
      for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
        INFO("rows " << size.rows << " columns " << size.columns << " shift " << shift << " seed " << ++seed);
        CHECK(gelu_error<T>(size, seed, shift) <= allowed_error<T>());
      }
    }
  });
}

TEST_CASE("A gelu is whole with any grid", "[kernels]") {
  for (const std::uint64_t blocks : {1u, 3u, 7u}) {
    INFO("blocks " << blocks << " seed " << kSeed);
    CHECK(gelu_error<float>({70, 33}, kSeed, 0, grid(blocks)) <= allowed_error<float>());
    CHECK(gelu_error<f16>({70, 40}, kSeed, 0, grid(blocks)) <= allowed_error<f16>());
  }
}

TEST_CASE("A gelu keeps a NaN and a positive infinity", "[kernels]") {
  for_each_float([]<class T>() {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    std::vector<T> x{quiet_nan<T>(), from_float<T>(kInfinity), from_float<T>(-kInfinity), from_float<T>(-20.0f)};
    std::vector<T> bias(4, from_float<T>(0.0f));
    std::vector<T> y(4, from_float<T>(7.0f));
    run_kernel(kernels::gelu_spec(DTypeOf<T>::value), workload(1, 4),
               {buffer(x), buffer(bias), buffer(y), Scalar(1u), Scalar(4u)});
    CHECK(std::isnan(to_float(y[0])));
    CHECK(to_float(y[1]) == kInfinity);
    CHECK(std::isnan(to_float(y[2])));
    CHECK(to_float(y[3]) == 0.0f);
  });
}

}  // namespace weft::test
