#include "acquire_queue.h"

#include "backoff.h"
#include "device/process_state.h"
#include "slot_pool.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace weft {

namespace {

constexpr std::chrono::microseconds kPause{200};  // Between looks of the first.
constexpr std::chrono::milliseconds kBetweenQuestions{10};
constexpr std::chrono::seconds kLongestSleep{1};  // Of the others, who are woken before.

}  // namespace

AcquireQueue::Waiter::Waiter(AcquireQueue& queue, bool is_watched) : queue_(queue), is_watched_(is_watched) {
  check(process_status(), "wait for a slot");
  const std::lock_guard lock(queue_.mutex_);
  place_ = queue_.waiters_.insert(queue_.waiters_.end(), this);
  queue_.waiting_.fetch_add(1);
}

AcquireQueue::Waiter::~Waiter() {
  if (process_state() != ProcessState::running) return;  // The lock may be held by a thread that is gone.
  std::optional<std::uint32_t> left;
  {
    const std::lock_guard lock(queue_.mutex_);
    left = slot_;
    if (place_ != queue_.waiters_.end()) {
      queue_.waiters_.erase(place_);
      queue_.waiting_.fetch_sub(1);
      queue_.wake_first();
    }
  }
  if (left) queue_.pool_.release(*left);
}

std::optional<std::uint32_t> AcquireQueue::Waiter::take() {
  const std::lock_guard lock(queue_.mutex_);
  // The first looks for all.
  if (!slot_ && place_ == queue_.waiters_.begin()) queue_.serve_with_lock_held();
  return std::exchange(slot_, {});
}

bool AcquireQueue::Waiter::is_first() const {
  const std::lock_guard lock(queue_.mutex_);
  return place_ == queue_.waiters_.begin();
}

void AcquireQueue::serve_with_lock_held() noexcept {
  while (!waiters_.empty()) {
    const std::optional<std::uint32_t> slot = pool_.find_free_slot();
    if (!slot) return;
    Waiter& first = *waiters_.front();
    waiters_.pop_front();
    waiting_.fetch_sub(1);
    first.place_ = waiters_.end();
    first.slot_ = slot;
    if (first.is_watched_) {
      pool_.wake_watcher();
    } else {
      first.served_.notify_one();
    }
    wake_first();
  }
}

void AcquireQueue::serve() noexcept {
  if (process_state() != ProcessState::running) return;
  const std::lock_guard lock(mutex_);
  serve_with_lock_held();
}

void AcquireQueue::wake_first() noexcept {
  if (waiters_.empty()) return;
  if (waiters_.front()->is_watched_) {
    pool_.wake_watcher();
  } else {
    waiters_.front()->served_.notify_one();
  }
}

// The first in the queue looks for what nobody gives back by hand: slots whose run has drained after all handles were
// gone. It spins, as a wait for a run does, and sleeps between looks then; all others sleep until it is their turn.
std::optional<std::uint32_t> AcquireQueue::wait(Deadline deadline) {
  Waiter waiter(*this, false);
  Backoff backoff(pool_.options().spin, deadline);
  auto ask_at = std::chrono::steady_clock::now() + kBetweenQuestions;
  for (;;) {
    if (const auto slot = waiter.take()) return slot;
    std::unique_lock lock(mutex_);
    if (waiter.slot_) continue;
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) break;
    const bool is_first = waiters_.front() == &waiter;
    if (!is_first) {
      waiter.served_.wait_for(lock, std::min<std::chrono::nanoseconds>(kLongestSleep, deadline - now));
      continue;
    }
    if (!backoff.is_spinning()) {
      waiter.served_.wait_for(lock, std::min<std::chrono::nanoseconds>(kPause, deadline - now));
      if (now < ask_at) continue;
    }
    lock.unlock();
    if (backoff.is_spinning()) static_cast<void>(backoff.pause());
    if (now >= ask_at) {
      ask_at = now + kBetweenQuestions;
      pool_.require_progress();
    }
  }
  pool_.require_progress();  // Who only polls learns of a lost device here.
  return waiter.take();
}

}  // namespace weft
