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
  /// Whether the last pause made the wait so long that it is time to ask what is wrong: after every sleep, and now and
  /// then in a long spin.
  [[nodiscard]] bool is_time_to_ask() const noexcept { return time_to_ask_; }

 private:
  Deadline started_;
  Deadline spin_until_;
  Deadline deadline_;
  Deadline ask_at_;  // While it spins.
  std::uint32_t pauses_ = 0;
  bool sleeping_ = false;
  bool time_to_ask_ = false;
};

}  // namespace weft
