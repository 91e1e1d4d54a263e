#pragma once

#include "plan/boundaries.h"
#include "plan/position_set.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace weft {

/// For every byte the last command that wrote it and the commands that read it since, kept for runs of bytes that share
/// both. A command's reads are added before its writes; what it must follow is passed to `follow` and may repeat.
class Frontier {
 public:
  explicit Frontier(const Boundaries& boundaries) : starts_(boundaries.count), runs_(boundaries.count) {
    for (const std::size_t begin : boundaries.allocation_begins) starts_.insert(begin);
  }

  template <class Follow>
  void read(std::uint32_t command, BoundaryRange range, Follow&& follow) {
    cut(range);
    for (std::size_t at = range.begin; at < range.end; at = starts_.after(at)) {
      ++steps_;
      Run& run = runs_[at];
      if (run.writer != kNone) follow(run.writer);
      readers_.push_back({command, run.readers});
      run.readers = readers_.size() - 1;
    }
  }

  template <class Follow>
  void write(std::uint32_t command, BoundaryRange range, Follow&& follow) {
    cut(range);
    for (std::size_t at = range.begin; at < range.end; at = starts_.after(at)) {
      const Run& run = runs_[at];
      if (run.writer != kNone) follow(run.writer);
      for (std::size_t reader = run.readers; reader != kNoReader; reader = readers_[reader].next) {
        ++steps_;
        if (readers_[reader].command != command) follow(readers_[reader].command);
      }
      ++steps_;
      if (at != range.begin) starts_.erase(at);
    }
    runs_[range.begin] = {command, kNoReader};
  }

  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
  static constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static constexpr std::size_t kNoReader = std::numeric_limits<std::size_t>::max();

  /// One link of a list of readers. Runs that were cut from one run share the links from before the cut.
  struct Reader {
    std::uint32_t command = kNone;
    std::size_t next = kNoReader;
  };

  struct Run {
    std::uint32_t writer = kNone;
    std::size_t readers = kNoReader;  ///< Newest first.
  };

  /// Makes runs start at both ends of `range`.
  void cut(BoundaryRange range) {
    cut(range.begin);
    cut(range.end);
  }

  void cut(std::size_t at) {
    if (starts_.contains(at)) return;
    runs_[at] = runs_[starts_.at_or_before(at)];
    starts_.insert(at);
  }

  PositionSet starts_;
  std::vector<Run> runs_;  ///< Meaningful at the positions in `starts_`.
  std::vector<Reader> readers_;
  std::uint64_t steps_ = 0;
};

}  // namespace weft
