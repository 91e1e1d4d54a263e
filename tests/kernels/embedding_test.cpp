#include "catch.h"
#include "kernels/float_elements.h"
#include "kernels/guarded_buffer.h"
#include "support/run_kernel.h"
#include <weft/kernels.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <optional>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kSeed = 5100;

struct Size {
  std::uint32_t batch;
  std::uint32_t sequence;
  std::uint32_t hidden;
};

constexpr std::int32_t kWords = 50;
constexpr std::int32_t kKinds = 2;
constexpr std::int32_t kSmallest = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t kLargest = std::numeric_limits<std::int32_t>::max();

/// Fresh tables, ids and types.
template <class T>
class EmbeddingProblem {
 public:
  EmbeddingProblem(Size size, std::uint64_t seed, std::size_t shift, std::uint32_t positions)
      : size_(size),
        position_count_(positions),
        random_(seed),
        tokens_(std::size_t{size.batch} * size.sequence),
        ids(random_integers(random_, tokens_, kWords - 1)),
        types(random_integers(random_, tokens_, kKinds - 1)),
        words_(random_elements<T>(random_, std::size_t{kWords} * size.hidden), shift),
        positions_(random_elements<T>(random_, std::size_t{positions} * size.hidden), shift),
        kinds_(random_elements<T>(random_, std::size_t{kKinds} * size.hidden), shift),
        y_(GuardedBuffer<T>::poisoned(tokens_ * size.hidden, shift)) {}

  void run(std::optional<Grid> grid = {}) {
    GuardedBuffer<std::int32_t> guarded_ids(ids, 1);
    GuardedBuffer<std::int32_t> guarded_types(types, 1);
    const KernelSpec spec = kernels::embedding_spec(DTypeOf<T>::value);
    const std::vector<std::uint64_t> words{size_.batch, size_.sequence};
    run_kernel(spec, grid ? LaunchConfig{*grid} : spec.launch(words),
               {guarded_ids.argument(), guarded_types.argument(), words_.argument(), positions_.argument(),
                kinds_.argument(), y_.argument(), Scalar(size_.batch), Scalar(size_.sequence), Scalar(size_.hidden),
                Scalar(static_cast<std::uint32_t>(kWords)), Scalar(position_count_),
                Scalar(static_cast<std::uint32_t>(kKinds))});
    CHECK(guarded_ids.guards_intact());
    CHECK(guarded_types.guards_intact());
    CHECK(words_.guards_intact());
    CHECK(positions_.guards_intact());
    CHECK(kinds_.guards_intact());
    CHECK(y_.guards_intact());
  }

  /// Of the rows that are known.
  double error() const {
    std::vector<T> result;
    std::vector<double> exact;
    for (std::size_t token = 0; token < tokens_; ++token) {
      if (!is_known(token)) continue;
      for (std::size_t i = 0; i < size_.hidden; ++i) {
        result.push_back(y_.operand()[token * size_.hidden + i]);
        exact.push_back(static_cast<double>(at(words_, ids[token], i)) +
                        at(positions_, static_cast<std::int32_t>(token % size_.sequence), i) +
                        at(kinds_, types[token], i));
      }
    }
    return relative_error<T>(result, exact);
  }

  bool is_known(std::size_t token) const {
    return ids[token] >= 0 && ids[token] < kWords && types[token] >= 0 && types[token] < kKinds &&
           token % size_.sequence < position_count_;
  }

  /// Elements of the rows of unknown tokens that are numbers.
  std::size_t numbers_of_unknown() const {
    std::size_t numbers = 0;
    for (std::size_t token = 0; token < tokens_; ++token) {
      for (std::size_t i = 0; i < size_.hidden && !is_known(token); ++i) {
        const T value = y_.operand()[token * size_.hidden + i];
        numbers += static_cast<std::size_t>(!std::isnan(to_float(value)));
        numbers += static_cast<std::size_t>(std::memcmp(&value, &kPoison, sizeof(T)) == 0);
      }
    }
    return numbers;
  }

 private:
  static constexpr T kPoison = poison<T>();

  float at(const GuardedBuffer<T>& table, std::int32_t row, std::size_t column) const {
    return to_float(table.operand()[static_cast<std::size_t>(row) * size_.hidden + column]);
  }

  Size size_;
  std::uint32_t position_count_;
  RandomFloats random_;
  std::size_t tokens_;

 public:
  std::vector<std::int32_t> ids;
  std::vector<std::int32_t> types;

 private:
  GuardedBuffer<T> words_;
  GuardedBuffer<T> positions_;
  GuardedBuffer<T> kinds_;
  GuardedBuffer<T> y_;
};

}  // namespace

TEST_CASE("An embedding is the sum of a word and a position and a type at every size", "[kernels]") {
  for_each_float([]<class T>() {
    std::uint64_t seed = kSeed;
    for (const Size& size :
         {Size{1, 1, 1}, Size{2, 3, 7}, Size{3, 33, 96}, Size{4, 16, 384}, Size{2, 5, 1031}, Size{1, 128, 768}}) {
      for (const std::size_t shift : {std::size_t{0}, std::size_t{1}}) {
        INFO("batch " << size.batch << " sequence " << size.sequence << " hidden " << size.hidden << " shift " << shift
                      << " seed " << ++seed);
        EmbeddingProblem<T> problem(size, seed, shift, size.sequence + 2);
        problem.run();
        CHECK(problem.error() <= allowed_error<T>());
      }
    }
  });
}

TEST_CASE("An id or type or position outside of its table makes its row NaN", "[kernels]") {
  for_each_float([]<class T>() {
    for (const std::uint32_t hidden : {24u, 33u}) {
      INFO("hidden " << hidden);
      // The last of six tokens has no position.
      EmbeddingProblem<T> problem({4, 6, hidden}, kSeed, 0, 5);
      problem.ids[0] = -1;
      problem.ids[2] = kWords;
      problem.ids[7] = kSmallest;
      problem.ids[8] = kLargest;
      problem.types[3] = -1;
      problem.types[9] = kKinds;
      problem.types[13] = kSmallest;
      problem.types[14] = kLargest;
      problem.run();
      CHECK(problem.error() <= allowed_error<T>());
      CHECK(problem.numbers_of_unknown() == 0);
    }
  });
}

TEST_CASE("An embedding is whole with any grid", "[kernels]") {
  EmbeddingProblem<float> problem({3, 7, 40}, kSeed, 0, 7);
  problem.run(grid(1));
  CHECK(problem.error() <= allowed_error<float>());
}

}  // namespace weft::test
