#include "plan/reduction.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

namespace weft {
namespace {

/// What is known of one pair (earlier, later).
enum class Verdict : std::uint8_t { needed, redundant, undecided };

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

/// The pairs with a verdict for each. Dropping redundant pairs does not change who is an ancestor of whom, so every
/// test may use all pairs or only those that are left.
struct Judged {
  Predecessors pairs;
  std::vector<Verdict> verdicts;
  std::uint64_t undecided = 0;

  [[nodiscard]] std::span<Verdict> of(std::size_t command) noexcept {
    return {verdicts.data() + pairs.offsets[command], pairs[command].size()};
  }
  void drop_redundant() {
    Predecessors left;
    left.steps = pairs.steps;
    std::size_t kept = 0;
    for (std::size_t command = 0; command < pairs.size(); ++command) {
      for (std::size_t pair = pairs.offsets[command]; pair < pairs.offsets[command + 1]; ++pair) {
        if (verdicts[pair] == Verdict::redundant) continue;
        left.commands.push_back(pairs.commands[pair]);
        verdicts[kept++] = verdicts[pair];
      }
      left.offsets.push_back(left.commands.size());
    }
    verdicts.resize(kept);
    pairs = std::move(left);
  }
};

/// Decides what depth alone decides: an ancestor of a command has a shorter longest path than the command, so a
/// predecessor that is at least as deep as every newer one is needed.
Judged judge_by_depth(const Predecessors& all) {
  Judged judged{all, std::vector<Verdict>(all.commands.size(), Verdict::needed), 0};
  std::vector<std::uint32_t> depths(all.size(), 0);
  for (std::uint32_t command = 0; command < all.size(); ++command) {
    const std::span<const std::uint32_t> earlier = all[command];
    const std::span<Verdict> verdicts = judged.of(command);
    std::uint32_t deepest = 0;
    for (std::size_t i = earlier.size(); i-- > 0;) {
      if (depths[earlier[i]] < deepest) {
        verdicts[i] = Verdict::undecided;
        ++judged.undecided;
      }
      deepest = std::max(deepest, depths[earlier[i]]);
    }
    if (!earlier.empty()) depths[command] = deepest + 1;
  }
  judged.pairs.steps = all.commands.size();
  return judged;
}

/// Decides every pair with a table: for each command and each chain of a greedy decomposition, the newest ancestor on
/// that chain.
class ChainTable {
 public:
  /// False if commands times chains pass `entries`; then nothing is decided.
  static bool judge(Judged& judged, std::size_t entries) {
    ChainTable table(judged.pairs.size(), entries);
    std::vector<Verdict> verdicts = judged.verdicts;
    for (std::uint32_t command = 0; command < judged.pairs.size(); ++command) {
      const std::span<Verdict> own{verdicts.data() + judged.pairs.offsets[command], judged.pairs[command].size()};
      if (!table.add(command, judged.pairs[command], own)) return false;
    }
    judged.verdicts = std::move(verdicts);
    judged.pairs.steps += table.steps_;
    judged.undecided = 0;
    return true;
  }

 private:
  ChainTable(std::size_t commands, std::size_t entries)
      : chains_(commands), most_chains_(entries / std::max<std::size_t>(commands, 1)) {
    row_starts_.reserve(commands + 1);
    row_starts_.push_back(0);
  }

  bool add(std::uint32_t command, std::span<const std::uint32_t> earlier, std::span<Verdict> verdicts) {
    // Entries are position + 1, so that 0 is "no ancestor there".
    row_.assign(tails_.size(), 0);
    for (std::size_t i = earlier.size(); i-- > 0;) {
      const std::uint32_t node = earlier[i];
      std::uint32_t& newest = row_[chains_[node]];
      if (newest > node) {
        verdicts[i] = Verdict::redundant;
        continue;
      }
      verdicts[i] = Verdict::needed;
      const std::size_t start = row_starts_[node];
      const std::size_t width = row_starts_[node + 1] - start;
      for (std::size_t chain = 0; chain < width; ++chain) row_[chain] = std::max(row_[chain], rows_[start + chain]);
      newest = std::max(newest, node + 1);
      steps_ += width;
    }
    chains_[command] = extend_chain(command);
    if (tails_.size() > most_chains_) return false;
    rows_.insert(rows_.end(), row_.begin(), row_.end());
    row_starts_.push_back(rows_.size());
    return true;
  }

  /// Appends to the chain whose tail is the newest that is an ancestor, else begins a chain.
  std::uint32_t extend_chain(std::uint32_t command) {
    std::uint32_t best = kNone;
    for (std::uint32_t chain = 0; chain < tails_.size(); ++chain) {
      const bool follows = row_[chain] == tails_[chain] + 1;
      if (follows && (best == kNone || tails_[chain] > tails_[best])) best = chain;
    }
    steps_ += tails_.size();
    if (best == kNone) {
      best = static_cast<std::uint32_t>(tails_.size());
      tails_.push_back(command);
    }
    tails_[best] = command;
    return best;
  }

  std::vector<std::uint32_t> chains_;  ///< The chain of each command.
  std::vector<std::uint32_t> tails_;   ///< The newest command of each chain.
  std::vector<std::uint32_t> row_;
  std::vector<std::uint32_t> rows_;  ///< Each as long as there were chains when its command came.
  std::vector<std::size_t> row_starts_;
  std::size_t most_chains_;
  std::uint64_t steps_ = 0;
};

/// Decides undecided pairs exactly: takes the earlier commands of such pairs in batches and finds, with one bit for
/// each, all that come after them. Any width; cost grows with the number of those commands times the pairs in between.
class BatchedReach {
 public:
  explicit BatchedReach(Judged& judged) : judged_(judged), bits_(judged.pairs.size(), kNone) { make_batches(); }

  /// Word operations of the whole test.
  [[nodiscard]] std::uint64_t words() const {
    std::uint64_t words = 0;
    for (const Batch& batch : batches_) words += cost(batch);
    return words;
  }

  /// Stops before the batch that would pass `most_words` word operations; later sources stay undecided.
  void judge(std::uint64_t most_words) {
    std::uint64_t words = 0;
    for (const Batch& batch : batches_) {
      words += cost(batch);
      if (words > most_words) return;
      run(batch);
      judged_.pairs.steps += cost(batch) / kWords;
    }
  }

 private:
  static constexpr std::size_t kWords = 8;
  static constexpr std::size_t kBits = 64 * kWords;
  using Row = std::array<std::uint64_t, kWords>;

  /// Sources first_source .. of the sorted list, and the last command that one of their undecided pairs leads to.
  struct Batch {
    std::size_t first_source = 0;
    std::size_t sources = 0;
    std::uint32_t last_command = 0;
  };

  void make_batches() {
    const Predecessors& pairs = judged_.pairs;
    std::vector<std::uint32_t> last(pairs.size(), 0);
    for (std::uint32_t command = 0; command < pairs.size(); ++command) {
      for (std::size_t pair = pairs.offsets[command]; pair < pairs.offsets[command + 1]; ++pair) {
        if (judged_.verdicts[pair] == Verdict::undecided) last[pairs.commands[pair]] = command;
      }
    }
    for (std::uint32_t command = 0; command < pairs.size(); ++command) {
      if (last[command] == 0) continue;
      if (sources_.size() % kBits == 0) batches_.push_back({sources_.size(), 0, 0});
      Batch& batch = batches_.back();
      sources_.push_back(command);
      ++batch.sources;
      batch.last_command = std::max(batch.last_command, last[command]);
    }
  }

  /// Word operations of one batch.
  [[nodiscard]] std::uint64_t cost(const Batch& batch) const {
    const std::vector<std::size_t>& offsets = judged_.pairs.offsets;
    return kWords * (offsets[batch.last_command + 1] - offsets[sources_[batch.first_source]]);
  }

  void run(const Batch& batch) {
    const std::uint32_t first = sources_[batch.first_source];
    for (std::uint32_t bit = 0; bit < batch.sources; ++bit) bits_[sources_[batch.first_source + bit]] = bit;
    rows_.assign(batch.last_command + 1 - first, Row{});
    for (std::uint32_t command = first; command <= batch.last_command; ++command) {
      Row& row = rows_[command - first];
      judge_command(command, first, row);
      if (bits_[command] != kNone) row[bits_[command] / 64] |= std::uint64_t{1} << (bits_[command] % 64);
    }
    for (std::size_t i = 0; i < batch.sources; ++i) bits_[sources_[batch.first_source + i]] = kNone;
  }

  /// Gathers in `row` which sources are ancestors of `command`. Newest first: only a newer predecessor can imply an
  /// older one.
  void judge_command(std::uint32_t command, std::uint32_t first, Row& row) {
    const std::span<const std::uint32_t> earlier = judged_.pairs[command];
    const std::span<Verdict> verdicts = judged_.of(command);
    for (std::size_t i = earlier.size(); i-- > 0 && earlier[i] >= first;) {
      const std::uint32_t bit = bits_[earlier[i]];
      if (bit != kNone && verdicts[i] == Verdict::undecided) {
        const bool implied = (row[bit / 64] >> (bit % 64) & 1) != 0;
        verdicts[i] = implied ? Verdict::redundant : Verdict::needed;
        --judged_.undecided;
      }
      const Row& ancestors = rows_[earlier[i] - first];
      for (std::size_t word = 0; word < kWords; ++word) row[word] |= ancestors[word];
    }
  }

  Judged& judged_;
  std::vector<std::uint32_t> sources_;  ///< Ascending.
  std::vector<Batch> batches_;
  std::vector<std::uint32_t> bits_;  ///< The bit of each source of the running batch.
  std::vector<Row> rows_;
};

}  // namespace

Reduction reduce(const Predecessors& all, const ReductionLimits& limits) {
  Judged judged = judge_by_depth(all);
  if (judged.undecided != 0) {
    BatchedReach reach(judged);
    const bool affordable = all.size() <= limits.exact_commands || reach.words() <= limits.cheap_words * all.size();
    if (affordable) {
      reach.judge(reach.words());
    } else if (!ChainTable::judge(judged, limits.chain_entries)) {
      reach.judge(limits.batch_words);
    }
    judged.drop_redundant();
  }
  return {std::move(judged.pairs), judged.undecided};
}

}  // namespace weft
