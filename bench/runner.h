#pragma once

#include <span>

namespace weft::bench {

/// One side of a comparison: slots that all do the same work. Used by one thread. Requests finish in the order in which
/// they were submitted.
class Runner {
 public:
  Runner() = default;
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;
  virtual ~Runner() = default;

  /// Reserves a free slot and returns its input, in pinned memory, to be filled.
  [[nodiscard]] virtual std::span<float> acquire() = 0;
  /// Launches the slot that was acquired last.
  virtual void submit() = 0;
  /// Waits for the oldest request in flight and returns its answer, which is readable until `release`.
  [[nodiscard]] virtual std::span<const float> wait() = 0;
  /// Gives the slot of the oldest request back.
  virtual void release() = 0;
};

}  // namespace weft::bench
