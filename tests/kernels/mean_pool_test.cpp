#include "catch.h"
#include "kernels/float_elements.h"
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
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kSeed = 8400;

/// As many sequences as there are lengths. Tokens that do not count are NaN.
template <class T>
class MeanPoolProblem {
 public:
  MeanPoolProblem(std::vector<std::int32_t> lengths, std::uint32_t sequence, std::uint32_t columns, std::uint64_t seed,
                  std::size_t shift)
      : lengths_(std::move(lengths)),
        sequence_(sequence),
        columns_(columns),
        shift_(shift),
        random_(seed),
        x(random_elements<T>(random_, lengths_.size() * sequence * columns)) {
    for (std::size_t item = 0; item < lengths_.size(); ++item) {
      const auto row = x.begin() + static_cast<std::ptrdiff_t>(item * sequence * columns);
      std::fill(row + static_cast<std::ptrdiff_t>(tokens(item) * columns),
                row + static_cast<std::ptrdiff_t>(std::size_t{sequence} * columns), quiet_nan<T>());
    }
  }

  std::vector<float> run(std::optional<Grid> grid = {}) const {
    GuardedBuffer<T> guarded_x(x, shift_);
    GuardedBuffer<std::int32_t> lengths(lengths_, 1);
    auto y = GuardedBuffer<float>::poisoned(lengths_.size() * columns_, shift_);
    const KernelSpec spec = kernels::mean_pool_spec(DTypeOf<T>::value);
    const auto batch = static_cast<std::uint32_t>(lengths_.size());
    const std::vector<std::uint64_t> words{batch};
    run_kernel(
        spec, grid ? LaunchConfig{*grid} : spec.launch(words),
        {guarded_x.argument(), lengths.argument(), y.argument(), Scalar(batch), Scalar(sequence_), Scalar(columns_)});
    CHECK(guarded_x.guards_intact());
    CHECK(lengths.guards_intact());
    CHECK(y.guards_intact());
    return {y.operand().begin(), y.operand().end()};
  }

  std::vector<double> exact() const {
    std::vector<double> results(lengths_.size() * columns_);
    for (std::size_t item = 0; item < lengths_.size(); ++item) {
      const std::span row = std::span(results).subspan(item * columns_, columns_);
      double squares = 0;
      for (std::size_t i = 0; i < columns_; ++i) {
        for (std::size_t token = 0; token < tokens(item); ++token) {
          row[i] += to_float(x[(item * sequence_ + token) * columns_ + i]) / static_cast<double>(tokens(item));
        }
        squares += row[i] * row[i];
      }
      for (double& value : row) value /= std::max(std::sqrt(squares), 1e-12);
    }
    return results;
  }

 private:
  std::size_t tokens(std::size_t item) const {
    return static_cast<std::size_t>(std::clamp<std::int64_t>(lengths_[item], 0, static_cast<std::int64_t>(sequence_)));
  }

  std::vector<std::int32_t> lengths_;
  std::uint32_t sequence_;
  std::uint32_t columns_;
  std::size_t shift_;
  RandomFloats random_;

 public:
  std::vector<T> x;
};

/// Every length of a sequence.
std::vector<std::int32_t> all_lengths(std::int32_t sequence) {
  std::vector<std::int32_t> lengths;
  for (std::int32_t length = 0; length <= sequence; ++length) lengths.push_back(length);
  return lengths;
}

}  // namespace

// The result is f32 for every type, so is its error.
TEST_CASE("A mean over every length has a norm of one and equals float64", "[kernels]") {
  for_each_float([]<class T>() {
    std::uint64_t seed = kSeed;
    for (const std::uint32_t columns : {1u, 7u, 96u, 384u, 520u, 1031u}) {
      for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
        INFO("columns " << columns << " shift " << shift << " seed " << ++seed);
        const MeanPoolProblem<T> problem(all_lengths(33), 33, columns, seed, shift);
        CHECK(relative_error<float>(problem.run(), problem.exact()) <= allowed_error<float>());
      }
    }
  });
}

TEST_CASE("A mean over a long sequence equals float64", "[kernels]") {
  const MeanPoolProblem<f16> problem({512, 511, 1, 300}, 512, 384, kSeed, 0);
  CHECK(relative_error<float>(problem.run(), problem.exact()) <= allowed_error<float>());
}

TEST_CASE("A mean takes a length below 0 as 0 and one beyond the sequence as the sequence", "[kernels]") {
  const MeanPoolProblem<float> problem(
      {std::numeric_limits<std::int32_t>::min(), -1, 6, std::numeric_limits<std::int32_t>::max()}, 5, 24, kSeed, 0);
  const std::vector<float> y = problem.run();
  CHECK(relative_error<float>(y, problem.exact()) <= allowed_error<float>());
  CHECK(std::all_of(y.begin(), y.begin() + 48, [](float value) { return value == 0; }));
}

TEST_CASE("A mean of zeros stays zero", "[kernels]") {
  MeanPoolProblem<float> problem({3}, 3, 8, kSeed, 0);
  std::fill(problem.x.begin(), problem.x.end(), 0.0f);
  CHECK(problem.run() == std::vector<float>(8, 0.0f));
}

TEST_CASE("A NaN among the tokens makes the mean of its sequence NaN and no other", "[kernels]") {
  MeanPoolProblem<float> problem({3, 3}, 3, 8, kSeed, 0);
  problem.x[11] = quiet_nan<float>();
  const std::vector<float> y = problem.run();
  for (std::size_t i = 0; i < y.size(); ++i) {
    INFO("element " << i);
    CHECK(std::isnan(y[i]) == (i < 8));
  }
}

TEST_CASE("A mean is whole with any grid", "[kernels]") {
  const MeanPoolProblem<bf16> problem(all_lengths(9), 9, 300, kSeed, 0);
  CHECK(relative_error<float>(problem.run(grid(3)), problem.exact()) <= allowed_error<float>());
}

}  // namespace weft::test
