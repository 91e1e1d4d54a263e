#include "catch.h"
#include "kernels/float_elements.h"
#include "kernels/guarded_buffer.h"
#include "support/run_kernel.h"
#include <weft/kernels.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kSeed = 515000;

struct Size {
  std::uint32_t rows;
  std::uint32_t in;
  std::uint32_t out;
};

enum class Variant { plain, gelu };

KernelSpec spec_of(Variant variant, DType dtype) {
  return variant == Variant::gelu ? kernels::linear_skinny_gelu_spec(dtype) : kernels::linear_skinny_spec(dtype);
}

/// Fresh operands of one problem, and what float64 makes of them.
template <class T>
class SkinnyProblem {
 public:
  SkinnyProblem(Size size, std::uint64_t seed, std::size_t shift) : SkinnyProblem(size, RandomFloats(seed), shift) {}

  std::vector<T> run(Variant variant, std::optional<Grid> grid = {}) {
    auto y = GuardedBuffer<T>::poisoned(std::size_t{size_.rows} * size_.out, shift_);
    const KernelSpec spec = spec_of(variant, DTypeOf<T>::value);
    std::vector<KernelArgument> arguments{x_.argument(), w_.argument()};
    if (variant == Variant::gelu) arguments.push_back(b_.argument());
    arguments.insert(arguments.end(), {y.argument(), Scalar(size_.rows), Scalar(size_.in), Scalar(size_.out)});
    const std::vector<std::uint64_t> words{size_.rows, size_.out};
    run_kernel(spec, grid ? LaunchConfig{*grid} : spec.launch(words), arguments);
    CHECK(x_.guards_intact());
    CHECK(w_.guards_intact());
    CHECK(b_.guards_intact());
    CHECK(y.guards_intact());
    return {y.operand().begin(), y.operand().end()};
  }

  double error(Variant variant, std::optional<Grid> grid = {}) {
    if (sums_.empty()) add_up();
    const std::vector<T> y = run(variant, grid);
    std::vector<double> exact = sums_;
    if (variant == Variant::gelu) {
      for (std::size_t i = 0; i < exact.size(); ++i) {
        const double value = exact[i] + to_float(b_.operand()[i % size_.out]);
        exact[i] = value / 2 * std::erfc(-value / std::sqrt(2.0));
      }
    }
    return relative_error<T>(std::span<const T>(y), exact);
  }

 private:
  SkinnyProblem(Size size, RandomFloats random, std::size_t shift)
      : size_(size),
        shift_(shift),
        x_(random_elements<T>(random, std::size_t{size.rows} * size.in), shift),
        w_(random_elements<T>(random, std::size_t{size.out} * size.in), shift),
        b_(random_elements<T>(random, size.out), shift) {}

  void add_up() {
    const auto doubles = [](std::span<const T> elements) {
      std::vector<double> values;
      for (const T& element : elements) values.push_back(to_float(element));
      return values;
    };
    const std::vector<double> x = doubles(x_.operand());
    const std::vector<double> w = doubles(w_.operand());
    for (std::size_t row = 0; row < size_.rows; ++row) {
      const double* left = x.data() + row * size_.in;
      for (std::size_t out = 0; out < size_.out; ++out) {
        sums_.push_back(std::inner_product(left, left + size_.in, w.data() + out * size_.in, 0.0));
      }
    }
  }

  Size size_;
  std::size_t shift_;
  GuardedBuffer<T> x_;
  GuardedBuffer<T> w_;
  GuardedBuffer<T> b_;
  std::vector<double> sums_;  // x w^T
};

// Each of the three tiles, full and with edges; inner columns up to several rounds of a warp, and every kind of tail.
const std::vector<Size> kSizes{{1, 1, 1},       {1, 8, 8},      {16, 16, 8},     {16, 32, 9},    {3, 33, 7},
                               {15, 40, 17},    {17, 256, 15},  {16, 384, 130},  {16, 1536, 24}, {5, 1544, 33},
                               {4, 3200, 10},   {1, 4104, 5},   {17, 520, 1009}, {32, 64, 1024}, {31, 40, 1017},
                               {33, 136, 2129}, {65, 72, 1410}, {129, 31, 350}};

template <class T>
std::vector<T> elements(std::initializer_list<float> values) {
  std::vector<T> list;
  for (const float value : values) list.push_back(from_float<T>(value));
  return list;
}

}  // namespace

TEST_CASE("A skinny linear layer with and without gelu equals float64 at every size", "[kernels]") {
  for_each_half([]<class T>() {
    std::uint64_t seed = kSeed;
    for (const Size& size : kSizes) {
      // Shifted by one element, nothing is aligned to 16 bytes.
      for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
        INFO("rows " << size.rows << " in " << size.in << " out " << size.out << " shift " << shift << " seed "
                     << ++seed);
        SkinnyProblem<T> problem(size, seed, shift);
        CHECK(problem.error(Variant::plain) <= allowed_error<T>());
        CHECK(problem.error(Variant::gelu) <= allowed_error<T>());
      }
    }
  });
}

TEST_CASE("A skinny linear layer is whole with any grid", "[kernels]") {
  for (const Size& size : {Size{33, 72, 50}, Size{40, 64, 1024}, Size{130, 40, 1030}}) {
    SkinnyProblem<f16> aligned(size, kSeed, 0);
    SkinnyProblem<bf16> unaligned(size, kSeed, 1);
    for (const Grid& blocks : {grid(1), grid(2, 3), grid(1, 1, 2), grid(9, 7)}) {
      INFO("rows " << size.rows << " grid " << blocks.x << " " << blocks.y << " " << blocks.z << " seed " << kSeed);
      CHECK(aligned.error(Variant::plain, blocks) <= allowed_error<f16>());
      CHECK(unaligned.error(Variant::gelu, blocks) <= allowed_error<bf16>());
    }
  }
}

TEST_CASE("A skinny linear layer gives equal bits for equal operands", "[kernels]") {
  for_each_half([]<class T>() {
    const auto bits = [](const std::vector<T>& values) {
      std::vector<std::uint16_t> list;
      for (const T& value : values) list.push_back(value.bits);
      return list;
    };
    SkinnyProblem<T> problem({40, 1032, 100}, kSeed, 0);
    CHECK(bits(problem.run(Variant::plain)) == bits(problem.run(Variant::plain)));
  });
}

TEST_CASE("A skinny linear layer adds in f32 and rounds once to the nearest", "[kernels]") {
  // 2048 + 1 + 1 in f16, and 256 + 1 + 1 in bf16, are what a sum in T would leave at its first term. The last terms
  // make a tie of two neighbours, and one beside it.
  std::vector<f16> x = elements<f16>({2048, 1, 1, 0, 0, 0, 0, 0, 2048, 1, 0, 0, 0, 0, 0, 0});
  std::vector<f16> w = elements<f16>({1, 1, 1, 1, 1, 1, 1, 1});
  std::vector<f16> y(2);
  run_kernel(kernels::linear_skinny_spec(DType::f16), workload(2, 1),
             {buffer(x), buffer(w), buffer(y), Scalar(2u), Scalar(8u), Scalar(1u)});
  CHECK(to_float(y[0]) == 2050.0f);
  CHECK(to_float(y[1]) == 2048.0f);
  std::vector<bf16> brain_x = elements<bf16>({256, 1, 1, 0, 0, 0, 0, 0, 256, 2, 1, 0, 0, 0, 0, 0});
  std::vector<bf16> brain_w = elements<bf16>({1, 1, 1, 1, 1, 1, 1, 1});
  std::vector<bf16> brain_y(2);
  run_kernel(kernels::linear_skinny_spec(DType::bf16), workload(2, 1),
             {buffer(brain_x), buffer(brain_w), buffer(brain_y), Scalar(2u), Scalar(8u), Scalar(1u)});
  CHECK(to_float(brain_y[0]) == 258.0f);
  CHECK(to_float(brain_y[1]) == 260.0f);
}

TEST_CASE("A skinny linear layer beyond the range of its type is an infinity", "[kernels]") {
  std::vector<f16> x = elements<f16>({200, 200, -200, 0});
  std::vector<f16> w = elements<f16>({200, 200});
  std::vector<f16> y(2);
  run_kernel(kernels::linear_skinny_spec(DType::f16), workload(2, 1),
             {buffer(x), buffer(w), buffer(y), Scalar(2u), Scalar(2u), Scalar(1u)});
  CHECK(to_float(y[0]) == std::numeric_limits<float>::infinity());
  CHECK(to_float(y[1]) == -40000.0f);
}

TEST_CASE("A NaN of a skinny linear layer spoils its row or its column alone", "[kernels]") {
  for_each_half([]<class T>() {
    constexpr std::size_t kRows = 18;
    constexpr std::size_t kIn = 40;
    constexpr std::size_t kOut = 10;
    std::vector<T> x(kRows * kIn, from_float<T>(1.0f));
    std::vector<T> w(kOut * kIn, from_float<T>(0.5f));
    std::vector<T> b(kOut, from_float<T>(0.0f));
    std::vector<T> y(kRows * kOut);
    x[17 * kIn + 39] = quiet_nan<T>();
    w[9 * kIn] = quiet_nan<T>();
    b[3] = quiet_nan<T>();
    run_kernel(kernels::linear_skinny_gelu_spec(DTypeOf<T>::value), workload(kRows, kOut),
               {buffer(x), buffer(w), buffer(b), buffer(y), Scalar(std::uint32_t{kRows}), Scalar(std::uint32_t{kIn}),
                Scalar(std::uint32_t{kOut})});
    for (std::size_t row = 0; row < kRows; ++row) {
      for (std::size_t out = 0; out < kOut; ++out) {
        INFO("row " << row << " out " << out);
        const float value = to_float(y[row * kOut + out]);
        if (row == 17 || out == 9 || out == 3) {
          CHECK(std::isnan(value));
        } else {
          CHECK(value == 20.0f);
        }
      }
    }
  });
}

}  // namespace weft::test
