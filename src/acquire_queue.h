#pragma once

#include <weft/deadline.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>

namespace weft {

class SlotPool;

/// Who waits for a slot of a pool: first come, first served. Thread-safe.
///
/// Free slots go to the first in the queue, whoever finds them: who waits, or who gives one back.
class AcquireQueue {
 public:
  /// One who waits, from the construction on. Its place is given up with it, and a slot that it did not take is given
  /// back.
  class Waiter {
   public:
    Waiter(AcquireQueue& queue, bool is_watched);
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    ~Waiter();

    /// The slot that it was given, if it was: the caller's then.
    [[nodiscard]] std::optional<std::uint32_t> take();
    /// Whether nobody waits before it.
    [[nodiscard]] bool is_first() const;

   private:
    friend class AcquireQueue;
    AcquireQueue& queue_;
    const bool is_watched_;  // By the context's watcher; else a thread waits for `served_`.
    // Guarded by the queue's mutex, as the next.
    std::optional<std::uint32_t> slot_;
    std::list<Waiter*>::iterator place_;
    std::condition_variable served_;
  };

  /// `pool` outlives this object.
  explicit AcquireQueue(SlotPool& pool) noexcept : pool_(pool) {}
  AcquireQueue(const AcquireQueue&) = delete;
  AcquireQueue& operator=(const AcquireQueue&) = delete;

  /// Takes no lock.
  [[nodiscard]] bool has_waiters() const noexcept { return waiting_.load(std::memory_order_relaxed) != 0; }
  /// Gives free slots to who waits.
  void serve() noexcept;
  /// As PreparedModel::acquire, behind those who wait already.
  [[nodiscard]] std::optional<std::uint32_t> wait(Deadline deadline);

 private:
  // With the lock held:
  void serve_with_lock_held() noexcept;
  void wake_first() noexcept;

  SlotPool& pool_;
  std::mutex mutex_;
  std::list<Waiter*> waiters_;  // Guarded by mutex_.
  std::atomic<std::uint32_t> waiting_{0};
};

}  // namespace weft
