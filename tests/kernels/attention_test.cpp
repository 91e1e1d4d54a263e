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
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kSeed = 9500;

struct Size {
  std::uint32_t sequence;
  std::uint32_t heads;
  std::uint32_t head_size;
};

/// As many sequences as there are lengths. Tokens beyond them, and the bias of k, are NaN: neither has an influence.
template <class T>
class AttentionProblem {
 public:
  AttentionProblem(std::vector<std::int32_t> lengths, Size size, std::uint64_t seed, std::size_t shift)
      : lengths_(std::move(lengths)),
        size_(size),
        shift_(shift),
        hidden_(std::size_t{size.heads} * size.head_size),
        scale_(1 / std::sqrt(static_cast<float>(size.head_size))),
        random_(seed),
        // Scores of several units, so that some weights are large and some small.
        qkv(random_elements<T>(random_, lengths_.size() * size.sequence * 3 * hidden_, 2.5f)),
        bias_(random_elements<T>(random_, 3 * hidden_)) {
    for (std::size_t item = 0; item < lengths_.size(); ++item) {
      std::fill(at(item, tokens(item), 0, 0), at(item, size.sequence, 0, 0), quiet_nan<T>());
    }
    std::fill_n(bias_.begin() + static_cast<std::ptrdiff_t>(hidden_), hidden_, quiet_nan<T>());
  }

  std::vector<T> run(std::optional<Grid> grid = {}) const {
    GuardedBuffer<T> guarded_qkv(qkv, shift_);
    GuardedBuffer<T> bias(bias_, shift_);
    GuardedBuffer<std::int32_t> lengths(lengths_, 1);
    auto y = GuardedBuffer<T>::poisoned(lengths_.size() * size_.sequence * hidden_, shift_);
    const KernelSpec spec = kernels::attention_spec(DTypeOf<T>::value, size_.head_size);
    const auto batch = static_cast<std::uint32_t>(lengths_.size());
    const std::vector<std::uint64_t> words{batch, size_.sequence, size_.heads, size_.head_size};
    run_kernel(spec, grid ? LaunchConfig{*grid} : spec.launch(words),
               {guarded_qkv.argument(), bias.argument(), lengths.argument(), y.argument(), Scalar(batch),
                Scalar(size_.sequence), Scalar(size_.heads), Scalar(size_.head_size), Scalar(scale_)});
    CHECK(guarded_qkv.guards_intact());
    CHECK(bias.guards_intact());
    CHECK(lengths.guards_intact());
    CHECK(y.guards_intact());
    return {y.operand().begin(), y.operand().end()};
  }

  std::vector<double> exact() const {
    std::vector<double> results(lengths_.size() * size_.sequence * hidden_);
    for (std::size_t item = 0; item < lengths_.size(); ++item) {
      for (std::size_t head = 0; head < size_.heads; ++head) {
        for (std::size_t token = 0; token < tokens(item); ++token) {
          attend(item, head, token, &results[(item * size_.sequence + token) * hidden_ + head * size_.head_size]);
        }
      }
    }
    return results;
  }

  /// Element `i` of q, k or v (`part` 0, 1 or 2) over all heads.
  typename std::vector<T>::iterator at(std::size_t item, std::size_t token, std::size_t part, std::size_t i) {
    return qkv.begin() + static_cast<std::ptrdiff_t>(index(item, token, part, i));
  }

 private:
  std::size_t tokens(std::size_t item) const {
    return static_cast<std::size_t>(std::clamp<std::int64_t>(lengths_[item], 0, size_.sequence));
  }

  std::size_t index(std::size_t item, std::size_t token, std::size_t part, std::size_t i) const {
    return ((item * size_.sequence + token) * 3 + part) * hidden_ + i;
  }

  double number(std::size_t item, std::size_t token, std::size_t part, std::size_t i) const {
    return to_float(qkv[index(item, token, part, i)]);
  }

  void attend(std::size_t item, std::size_t head, std::size_t token, double* result) const {
    const std::size_t first = head * size_.head_size;
    std::vector<double> weights(tokens(item));
    double sum = 0;
    for (std::size_t other = 0; other < weights.size(); ++other) {
      double score = 0;
      for (std::size_t i = first; i < first + size_.head_size; ++i) {
        score += (number(item, token, 0, i) + to_float(bias_[i])) * number(item, other, 1, i);
      }
      weights[other] = std::exp(score * scale_);
      sum += weights[other];
    }
    for (std::size_t i = 0; i < size_.head_size; ++i) {
      result[i] = to_float(bias_[2 * hidden_ + first + i]);
      for (std::size_t other = 0; other < weights.size(); ++other) {
        result[i] += weights[other] / sum * number(item, other, 2, first + i);
      }
    }
  }

  std::vector<std::int32_t> lengths_;
  Size size_;
  std::size_t shift_;
  std::size_t hidden_;
  float scale_;
  RandomFloats random_;

 public:
  std::vector<T> qkv;

 private:
  std::vector<T> bias_;
};

template <class T>
void check(const std::vector<std::int32_t>& lengths, Size size, std::uint64_t seed, std::size_t shift) {
  INFO("sequence " << size.sequence << " heads " << size.heads << " head size " << size.head_size << " shift " << shift
                   << " seed " << seed);
  const AttentionProblem<T> problem(lengths, size, seed, shift);
  CHECK(relative_error<T>(problem.run(), problem.exact()) <= allowed_error<T>());
}

}  // namespace

TEST_CASE("Attention equals float64 at every head size", "[kernels]") {
  for_each_float([]<class T>() {
    std::uint64_t seed = kSeed;
    for (const std::uint32_t head_size : {1u, 2u, 7u, 8u, 16u, 24u, 31u, 32u, 33u, 40u, 64u, 65u, 96u, 127u, 128u}) {
      for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
        check<T>({37, 5, 36}, {37, 2, head_size}, ++seed, shift);
      }
    }
  });
}

TEST_CASE("Attention equals float64 at every length of a sequence", "[kernels]") {
  for_each_float([]<class T>() {
    std::vector<std::int32_t> lengths;
    for (std::int32_t length = 0; length <= 33; ++length) lengths.push_back(length);
    check<T>(lengths, {33, 6, 16}, kSeed + 100, 0);
    check<T>(lengths, {33, 1, 15}, kSeed + 101, 1);
  });
}

// Sequences about the tiles of keys and of queries.
TEST_CASE("Attention equals float64 over many tiles", "[kernels]") {
  for_each_float([]<class T>() {
    check<T>({63, 64, 65, 96, 97, 127, 128, 129, 130}, {130, 2, 32}, kSeed + 200, 0);
    check<T>({64, 127, 129, 193}, {193, 1, 64}, kSeed + 201, 0);
    check<T>({63, 64, 65, 129, 150}, {150, 1, 128}, kSeed + 202, 0);
    check<T>({513}, {513, 1, 32}, kSeed + 203, 0);
  });
}

TEST_CASE("Attention gives rows of zeros to tokens beyond the length", "[kernels]") {
  for_each_float([]<class T>() {
    constexpr std::size_t kHidden = 48;
    const AttentionProblem<T> problem({0, 3, 70}, {70, 2, 24}, kSeed, 0);
    const std::vector<T> y = problem.run();
    const auto row = [&](std::size_t item, std::size_t token) {
      return y.begin() + static_cast<std::ptrdiff_t>((item * 70 + token) * kHidden);
    };
    const auto is_zero = [](T value) { return to_float(value) == 0; };
    CHECK(std::all_of(row(0, 0), row(1, 0), is_zero));
    CHECK(std::none_of(row(1, 0), row(1, 3), is_zero));
    CHECK(std::all_of(row(1, 3), row(2, 0), is_zero));
  });
}

TEST_CASE("Attention takes a length below 0 as 0 and one beyond the sequence as the sequence", "[kernels]") {
  for_each_float([]<class T>() {
    check<T>({-1, std::numeric_limits<std::int32_t>::min(), 18, std::numeric_limits<std::int32_t>::max()}, {17, 1, 32},
             kSeed, 0);
  });
}

TEST_CASE("Attention to scores beyond the range of the exponential equals float64", "[kernels]") {
  for_each_float([]<class T>() {
    AttentionProblem<T> problem({40}, {40, 1, 32}, kSeed, 0);
    // The score of token 35 is far above the others, and met late.
    for (std::size_t token = 0; token < 40; ++token) std::fill_n(problem.at(0, token, 0, 0), 32, from_float<T>(8.0f));
    std::fill_n(problem.at(0, 35, 1, 0), 32, from_float<T>(8.0f));
    for (std::size_t token = 0; token < 40; ++token) {
      if (token != 35) std::fill_n(problem.at(0, token, 1, 0), 32, from_float<T>(-4.0f));
    }
    CHECK(relative_error<T>(problem.run(), problem.exact()) <= allowed_error<T>());
  });
}

TEST_CASE("A NaN in a query makes its row NaN and one in a key all rows of its head", "[kernels]") {
  for_each_float([]<class T>() {
    constexpr std::size_t kHidden = 64;
    AttentionProblem<T> problem({20, 20}, {20, 2, 32}, kSeed, 0);
    *problem.at(0, 7, 0, 5) = quiet_nan<T>();    // a query of head 0
    *problem.at(1, 18, 1, 40) = quiet_nan<T>();  // a key of head 1
    const std::vector<T> y = problem.run();
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t item = i / (20 * kHidden);
      const bool first_head = i % kHidden < 32;
      const bool expected = item == 0 ? first_head && i / kHidden == 7 : !first_head;
      wrong += static_cast<std::size_t>(std::isnan(to_float(y[i])) != expected);
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("Attention is whole with any grid", "[kernels]") {
  for_each_float([]<class T>() {
    const AttentionProblem<T> problem({70, 9, 65}, {70, 3, 20}, kSeed, 0);
    for (const Grid& blocks : {grid(1), grid(2, 2, 2), grid(9, 7, 5)}) {
      INFO("grid " << blocks.x << " " << blocks.y << " " << blocks.z << " seed " << kSeed);
      CHECK(relative_error<T>(problem.run(blocks), problem.exact()) <= allowed_error<T>());
    }
  });
}

TEST_CASE("Attention to heads larger than its kernel takes writes nothing", "[kernels]") {
  for_each_float([]<class T>() {
    std::vector<T> qkv(3 * 33, from_float<T>(1.0f));
    std::vector<T> bias(3 * 33, from_float<T>(1.0f));
    std::vector<std::int32_t> lengths{1};
    std::vector<T> y(33, from_float<T>(7.0f));
    run_kernel(kernels::attention_spec(DTypeOf<T>::value, 32), LaunchConfig{grid(1)},
               {buffer(qkv), buffer(bias), buffer(lengths), buffer(y), Scalar(1u), Scalar(1u), Scalar(1u), Scalar(33u),
                Scalar(1.0f)});
    CHECK(y == std::vector<T>(33, from_float<T>(7.0f)));
  });
}

}  // namespace weft::test
