#pragma once

#include <weft/completion.h>

#include <atomic>
#include <chrono>
#include <cstdint>

namespace weft {

/// The word in pinned memory that a slot's graph counts its finished runs in. It stands on a 128-byte line of its own.
class CompletionWord {
 public:
  CompletionWord() noexcept = default;
  explicit CompletionWord(std::uint64_t* word) noexcept : word_(word) {}

  /// Whether `run` runs have finished; if so, what they wrote is readable.
  [[nodiscard]] bool reached(std::uint64_t run) const noexcept {
    return std::atomic_ref<std::uint64_t>(*word_).load(std::memory_order_acquire) >= run;
  }

 private:
  std::uint64_t* word_ = nullptr;
};

/// The rhythm of a wait that polls: spins first, for the least latency, then sleeps ever longer between looks.
class Backoff {
 public:
  Backoff(std::chrono::nanoseconds spin, Deadline deadline) noexcept;

  /// Lets a little time pass; false, at once, when the deadline has passed.
  [[nodiscard]] bool pause() noexcept;
  /// Whether the wait is so long that it sleeps: time to ask what is wrong.
  [[nodiscard]] bool is_sleeping() const noexcept { return sleeping_; }

 private:
  Deadline spin_until_;
  Deadline deadline_;
  std::chrono::nanoseconds interval_;
  bool sleeping_ = false;
};

}  // namespace weft
