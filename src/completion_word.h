#pragma once

#include <atomic>
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

}  // namespace weft
