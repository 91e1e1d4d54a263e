#include "catch.h"
#include "kernels/guarded_buffer.h"
#include "support/run_kernel.h"
#include <weft/kernels.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

namespace weft::test {
namespace {

struct Size {
  std::uint32_t rows;
  std::uint32_t in;
  std::uint32_t out;
};

enum class Variant { biased, relu, unbiased, split };

/// Fresh operands of one problem, and what float64 makes of them.
class LinearProblem {
 public:
  LinearProblem(Size size, std::uint64_t seed, std::size_t shift)
      : size_(size),
        random_(seed),
        shift_(shift),
        x_(random_.take(std::size_t{size.rows} * size.in), shift),
        w_(random_.take(std::size_t{size.out} * size.in), shift),
        b_(random_.take(size.out), shift) {}

  /// Runs the kernel and returns the error, in units of 2^-24 and the norm of |x| |w|^T + |b| (+ |sum|): the error of a
  /// backward stable sum of random terms is about 0.5, whatever the order and number of the terms; and with three terms
  /// or fewer it is at most 4 for any. Tensor-float 32 gives more than 50.
  double error(Variant variant, std::uint32_t splits = 1, std::optional<Grid> grid = {}) {
    const bool accumulates = variant == Variant::split;
    const std::size_t elements = std::size_t{size_.rows} * size_.out;
    const std::vector<float> before = accumulates ? random_.take(elements) : std::vector<float>(elements, 0.0f);
    GuardedFloats y = accumulates ? GuardedFloats(before, shift_) : GuardedFloats::poisoned(elements, shift_);

    const KernelSpec spec = spec_of(variant);
    std::vector<KernelArgument> arguments{x_.argument(), w_.argument()};
    if (variant != Variant::unbiased) arguments.push_back(b_.argument());
    arguments.insert(arguments.end(), {y.argument(), Scalar(size_.rows), Scalar(size_.in), Scalar(size_.out)});
    if (accumulates) arguments.push_back(Scalar(splits));
    const Workload words = accumulates ? workload(size_.rows, size_.out, splits) : workload(size_.rows, size_.out);
    run_kernel(spec, grid ? LaunchConfig{*grid} : spec.launch(words.words), arguments);

    CHECK(x_.guards_intact());
    CHECK(w_.guards_intact());
    CHECK(b_.guards_intact());
    CHECK(y.guards_intact());
    return compare(variant, before, y.operand());
  }

 private:
  static KernelSpec spec_of(Variant variant) {
    switch (variant) {
      case Variant::biased:
        return kernels::linear_spec();
      case Variant::relu:
        return kernels::linear_relu_spec();
      case Variant::unbiased:
        return kernels::linear_unbiased_spec();
      case Variant::split:
        break;
    }
    return kernels::linear_split_spec();
  }

  double compare(Variant variant, std::span<const float> before, std::span<const float> y) const {
    double squared_error = 0;
    double squared_norm = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t row = i / size_.out;
      const std::size_t out = i % size_.out;
      const double bias = variant == Variant::unbiased ? 0.0 : b_.operand()[out];
      double exact = bias + before[i];
      double norm = std::abs(bias) + std::abs(before[i]);
      const float* x = x_.operand().data() + row * size_.in;
      const float* w = w_.operand().data() + out * size_.in;
      for (std::size_t k = 0; k < size_.in; ++k) {
        const double term = static_cast<double>(x[k]) * w[k];
        exact += term;
        norm += std::abs(term);
      }
      if (variant == Variant::relu) exact = std::max(exact, 0.0);
      squared_error += (y[i] - exact) * (y[i] - exact);
      squared_norm += norm * norm;
    }
    return std::sqrt(squared_error / squared_norm) * 0x1p24;
  }

  Size size_;
  RandomFloats random_;
  std::size_t shift_;
  GuardedFloats x_;
  GuardedFloats w_;
  GuardedFloats b_;
};

constexpr double kAllowed = 4;  // See LinearProblem::error; a NaN fails the comparison.

constexpr std::uint64_t kSeed = 20240611;

const std::vector<Size>& sizes() {
  static const std::vector<Size> list = [] {
    std::vector<Size> all{{1, 1, 1},     {1, 4, 1},      {8, 128, 16},  {9, 129, 17},  {7, 127, 15},  {3, 256, 5},
                          {32, 64, 128}, {32, 128, 128}, {32, 128, 10}, {16, 132, 16}, {17, 260, 33}, {257, 1000, 130}};
    for (const std::uint32_t rows : {1u, 2u, 31u, 33u}) {
      all.insert(all.end(), {{rows, 63, 101}, {rows, 101, 37}, {rows, 37, 7}});
    }
    return all;
  }();
  return list;
}

void check_all_sizes(Variant variant) {
  std::uint64_t seed = kSeed + static_cast<std::uint64_t>(variant) * 1000;
  for (const Size& size : sizes()) {
    // Shifted by one float, nothing is aligned to 16 bytes.
    for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
      INFO("rows " << size.rows << " in " << size.in << " out " << size.out << " shift " << shift << " seed "
                   << ++seed);
      CHECK(LinearProblem(size, seed, shift).error(variant) <= kAllowed);
    }
  }
}

}  // namespace

TEST_CASE("A linear layer equals float64 at every size", "[kernels]") { check_all_sizes(Variant::biased); }

TEST_CASE("A linear layer with relu equals float64 at every size", "[kernels]") { check_all_sizes(Variant::relu); }

TEST_CASE("A linear layer without bias equals float64 at every size", "[kernels]") {
  check_all_sizes(Variant::unbiased);
}

TEST_CASE("A linear layer in any number of splits adds to its accumulator once", "[kernels]") {
  std::uint64_t seed = kSeed + 9000;
  for (const Size& size : {Size{1, 1, 1}, Size{32, 128, 10}, Size{31, 63, 101}, Size{5, 5, 9}, Size{33, 1000, 17}}) {
    for (const std::uint32_t splits : {1u, 2u, 3u, 7u, 64u, 1001u}) {
      INFO("rows " << size.rows << " in " << size.in << " out " << size.out << " splits " << splits << " seed "
                   << ++seed);
      CHECK(LinearProblem(size, seed, splits % 2).error(Variant::split, splits) <= kAllowed);
    }
  }
}

TEST_CASE("A linear layer is whole with any grid", "[kernels]") {
  const Size size{33, 70, 50};
  for (const Grid& blocks : {grid(1), grid(2, 3), grid(1, 1, 2), grid(9, 7, 5)}) {
    INFO("grid " << blocks.x << " " << blocks.y << " " << blocks.z << " seed " << kSeed);
    CHECK(LinearProblem(size, kSeed, 0).error(Variant::biased, 1, blocks) <= kAllowed);
    CHECK(LinearProblem(size, kSeed, 0).error(Variant::split, 3, blocks) <= kAllowed);
  }
}

TEST_CASE("More rows and outputs than a grid has blocks are all computed", "[kernels]") {
  INFO("seed " << kSeed);
  CHECK(LinearProblem({600000, 1, 1}, kSeed, 0).error(Variant::biased) <= kAllowed);
  CHECK(LinearProblem({1, 1, 65535 * 16 + 17}, kSeed, 0).error(Variant::biased) <= kAllowed);
}

TEST_CASE("A NaN of the input passes relu", "[kernels]") {
  std::vector<float> x{std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> w{1};
  std::vector<float> b{0};
  std::vector<float> y{7};
  run_kernel(kernels::linear_relu_spec(), workload(1, 1),
             {buffer(x), buffer(w), buffer(b), buffer(y), Scalar(1u), Scalar(1u), Scalar(1u)});
  CHECK(std::isnan(y[0]));
}

}  // namespace weft::test
