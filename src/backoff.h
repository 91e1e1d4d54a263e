#pragma once

#include <weft/deadline.h>

#include <chrono>
#include <cstdint>

namespace weft {

/// The rhythm of a wait that polls: spins first, for the least latency, then sleeps between looks, the longer the
/// longer it has waited.
class Backoff {
 public:
  Backoff(std::chrono::nanoseconds spin, Deadline deadline) noexcept;

  /// Lets a little time pass between two looks; false, at once, when the deadline has passed.
  [[nodiscard]] bool pause() noexcept;
  /// Whether the wait is so long that it sleeps: time to ask what is wrong.
  [[nodiscard]] bool is_sleeping() const noexcept { return sleeping_; }

 private:
  Deadline started_;
  Deadline spin_until_;
  Deadline deadline_;
  std::uint32_t pauses_ = 0;
  bool sleeping_ = false;
};

}  // namespace weft
