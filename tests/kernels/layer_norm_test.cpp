#include "catch.h"
#include "kernels/float_elements.h"
#include "kernels/guarded_buffer.h"
#include "support/run_kernel.h"
#include <weft/kernels.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kSeed = 6200;
constexpr float kEps = 1e-5f;

struct Size {
  std::uint32_t rows;
  std::uint32_t columns;
};

constexpr Size kSizes[] = {{1, 1},    {2, 2},    {3, 7},    {33, 96},  {16, 384}, {5, 768},
                           {7, 1024}, {2, 1032}, {3, 1031}, {2, 4100}, {17, 33}};

/// Fresh operands of one problem, without bias and residual where there is none.
template <class T>
class LayerNormProblem {
 public:
  LayerNormProblem(Size size, std::uint64_t seed, std::size_t shift, bool has_residual)
      : size_(size),
        shift_(shift),
        has_residual_(has_residual),
        random_(seed),
        x(random_elements<T>(random_, elements())),
        bias_(random_elements<T>(random_, size.columns)),
        residual_(random_elements<T>(random_, elements(), 3)),
        gamma_(random_elements<T>(random_, size.columns, 2)),
        beta_(random_elements<T>(random_, size.columns)) {}

  /// The result, after a look at all guards.
  std::vector<T> run(std::optional<Grid> grid = {}) {
    const KernelSpec spec = has_residual_ ? kernels::layer_norm_residual_spec(DTypeOf<T>::value)
                                          : kernels::layer_norm_spec(DTypeOf<T>::value);
    std::vector<GuardedBuffer<T>> inputs{{x, shift_}};
    if (has_residual_) {
      inputs.emplace_back(bias_, shift_);
      inputs.emplace_back(residual_, shift_);
    }
    inputs.emplace_back(gamma_, shift_);
    inputs.emplace_back(beta_, shift_);
    auto y = GuardedBuffer<T>::poisoned(elements(), shift_);

    std::vector<KernelArgument> arguments;
    for (GuardedBuffer<T>& input : inputs) arguments.emplace_back(input.argument());
    arguments.insert(arguments.end(), {y.argument(), Scalar(size_.rows), Scalar(size_.columns), Scalar(kEps)});
    const std::vector<std::uint64_t> words{size_.rows};
    run_kernel(spec, grid ? LaunchConfig{*grid} : spec.launch(words), arguments);
    for (const GuardedBuffer<T>& input : inputs) CHECK(input.guards_intact());
    CHECK(y.guards_intact());
    return {y.operand().begin(), y.operand().end()};
  }

  std::vector<double> exact() const {
    std::vector<double> results;
    for (std::size_t begin = 0; begin < elements(); begin += size_.columns) {
      std::vector<double> row;
      double mean = 0;
      for (std::size_t i = 0; i < size_.columns; ++i) {
        row.push_back(to_float(x[begin + i]));
        if (has_residual_) row.back() += static_cast<double>(to_float(bias_[i])) + to_float(residual_[begin + i]);
        mean += row.back() / size_.columns;
      }
      double variance = 0;
      for (const double value : row) variance += (value - mean) * (value - mean) / size_.columns;
      for (std::size_t i = 0; i < size_.columns; ++i) {
        results.push_back((row[i] - mean) / std::sqrt(variance + kEps) * to_float(gamma_[i]) + to_float(beta_[i]));
      }
    }
    return results;
  }

 private:
  std::size_t elements() const { return std::size_t{size_.rows} * size_.columns; }

  Size size_;
  std::size_t shift_;
  bool has_residual_;
  RandomFloats random_;

 public:
  std::vector<T> x;

 private:
  std::vector<T> bias_;
  std::vector<T> residual_;
  std::vector<T> gamma_;
  std::vector<T> beta_;
};

void check_all_sizes(bool has_residual) {
  for_each_float([&]<class T>() {
    std::uint64_t seed = kSeed;
    for (const Size& size : kSizes) {
      // Shifted by one element, nothing is aligned to 16 bytes.
      for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
        INFO("rows " << size.rows << " columns " << size.columns << " shift " << shift << " seed " << ++seed);
        LayerNormProblem<T> problem(size, seed, shift, has_residual);
        CHECK(relative_error<T>(problem.run(), problem.exact()) <= allowed_error<T>());
      }
    }
  });
}

}  // namespace

TEST_CASE("A layer norm equals float64 at every size", "[kernels]") { check_all_sizes(false); }

TEST_CASE("A layer norm of a sum with bias and residual equals float64 at every size", "[kernels]") {
  check_all_sizes(true);
}

TEST_CASE("A layer norm is whole with any grid", "[kernels]") {
  INFO("seed " << kSeed);
  for (const bool has_residual : {false, true}) {
    LayerNormProblem<float> problem({33, 40}, kSeed, 0, has_residual);
    CHECK(relative_error<float>(problem.run(grid(2)), problem.exact()) <= allowed_error<float>());
  }
}

TEST_CASE("A layer norm of numbers far from zero keeps their differences", "[kernels]") {
  LayerNormProblem<float> problem({4, 384}, kSeed, 0, false);
  for (float& value : problem.x) value = 1000 + std::round(value * 1024) / 1024;
  // Of f32's 24 bits, the mean alone takes 10.
  CHECK(relative_error<float>(problem.run(), problem.exact()) <= 1e-4);
}

TEST_CASE("A NaN makes its own row of a layer norm NaN and no other", "[kernels]") {
  for_each_float([]<class T>() {
    constexpr std::size_t kColumns = 40;
    LayerNormProblem<T> problem({3, kColumns}, kSeed, 0, true);
    problem.x[kColumns + 7] = quiet_nan<T>();
    const std::vector<T> y = problem.run();
    for (std::size_t i = 0; i < y.size(); ++i) {
      INFO("element " << i);
      CHECK(std::isnan(to_float(y[i])) == (i / kColumns == 1));
    }
  });
}

}  // namespace weft::test
