#include "completion_word.h"

#include <algorithm>
#include <thread>

namespace weft {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::nanoseconds kShortestSleep = std::chrono::microseconds(20);
constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::microseconds(500);
constexpr int kSpinsPerClockRead = 16;

/// `span` from now, or the end of time where that is nearer.
Deadline from_now(std::chrono::nanoseconds span) noexcept {
  const Deadline now = Clock::now();
  return span < Deadline::max() - now ? now + span : Deadline::max();
}

void relax_processor() noexcept {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

Backoff::Backoff(std::chrono::nanoseconds spin, Deadline deadline) noexcept
    : spin_until_(from_now(spin)), deadline_(deadline), interval_(kShortestSleep) {}

bool Backoff::pause() noexcept {
  const Clock::time_point now = Clock::now();
  if (now >= deadline_) return false;
  if (now < spin_until_) {
    for (int i = 0; i < kSpinsPerClockRead; ++i) relax_processor();
    return true;
  }
  sleeping_ = true;
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(interval_, deadline_ - now));
  interval_ = std::min(2 * interval_, kLongestSleep);
  return true;
}

}  // namespace weft
