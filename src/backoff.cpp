#include "backoff.h"

#include <algorithm>
#include <thread>

namespace weft {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::nanoseconds kShortestSleep = std::chrono::microseconds(20);
constexpr std::chrono::nanoseconds kLongestSleep = std::chrono::microseconds(500);
constexpr std::chrono::nanoseconds kSpinBetweenQuestions = std::chrono::milliseconds(10);
constexpr int kSleepsPerWait = 16;  // A sleep is at most this part of the wait so far, so that it costs little of it.
constexpr std::uint32_t kLooksPerClockRead = 16;

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
    : started_(Clock::now()),
      spin_until_(from_now(spin)),
      deadline_(deadline),
      ask_at_(from_now(kSpinBetweenQuestions)) {}

bool Backoff::pause() noexcept {
  time_to_ask_ = false;
  if (!sleeping_ && pauses_++ % kLooksPerClockRead != 0) {
    relax_processor();
    return true;
  }
  const Clock::time_point now = Clock::now();
  if (now >= deadline_) return false;
  if (now < spin_until_) {
    time_to_ask_ = now >= ask_at_;
    if (time_to_ask_) ask_at_ = now + kSpinBetweenQuestions;
    return true;
  }
  sleeping_ = time_to_ask_ = true;
  const auto sleep =
      std::clamp<std::chrono::nanoseconds>((now - started_) / kSleepsPerWait, kShortestSleep, kLongestSleep);
  std::this_thread::sleep_for(std::min<std::chrono::nanoseconds>(sleep, deadline_ - now));
  return true;
}

}  // namespace weft
