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
  /// Whether the next pause spins, as far as the last one knew.
  [[nodiscard]] bool is_spinning() const noexcept { return !sleeping_; }
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

/// Waits until `look` is true, asking what is wrong with `ask` now and then, and at the deadline once more: who only
/// polls learns of a lost device there. False when the deadline passed.
template <class Look, class Ask>
bool wait_until(std::chrono::nanoseconds spin, Deadline deadline, Look&& look, Ask&& ask) {
  if (look()) return true;
  Backoff backoff(spin, deadline);
  while (backoff.pause()) {
    if (look()) return true;
    if (backoff.is_time_to_ask()) ask();
  }
  ask();
  return look();
}

}  // namespace weft
