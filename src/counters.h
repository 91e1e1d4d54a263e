#pragma once

#include <weft/statistics.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

namespace weft {

/// A number that one thread at a time adds to and others read: no read-modify-write, so it costs a load and a store of
/// a line that the thread has.
class OwnedCounter {
 public:
  void add(std::uint64_t count) noexcept {
    value_.store(value_.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// A number that any thread adds to.
class SharedCounter {
 public:
  void add(std::uint64_t count) noexcept { value_.fetch_add(count, std::memory_order_relaxed); }
  void subtract(std::uint64_t count) noexcept { value_.fetch_sub(count, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

class Lane;

/// The runs of one slot, by its lane: `in_flight` and `runs`.
[[nodiscard]] SlotStatistics runs_of(const Lane& lane) noexcept;

/// Who has slots to count. `statistics` is called under a lock of the context and takes none.
class SlotSource {
 public:
  SlotSource() = default;
  SlotSource(const SlotSource&) = delete;
  SlotSource& operator=(const SlotSource&) = delete;
  [[nodiscard]] virtual SlotStatistics statistics() const noexcept = 0;

 protected:
  ~SlotSource() = default;
};

/// What a context counts, beside its memory. Thread-safe.
class ContextCounters {
 public:
  /// Those of a source's slots. A list, so that they change hands where nothing may fail.
  using Lanes = std::list<std::shared_ptr<const Lane>>;

  /// `source` is asked from now on, until it is removed.
  void add(const SlotSource& source, Lanes lanes);
  /// Keeps what it has counted so far, and the lanes that are in flight, whose runs count as what becomes of them.
  void remove(const SlotSource& source) noexcept;
  /// Lets go of lanes whose source is gone and that have drained by now.
  void settle() noexcept;

  [[nodiscard]] std::uint64_t models() const;
  [[nodiscard]] SlotStatistics slots() const;

 private:
  struct Source {
    const SlotSource* slots;
    Lanes lanes;
  };
  /// With the lock held. What is let go of is moved to `drained`, to be destroyed outside it.
  void settle(Lanes& drained) noexcept;

  mutable std::mutex mutex_;
  std::vector<Source> sources_;  // Guarded by mutex_, as the next.
  SlotStatistics gone_;          // Of sources that were removed: what counts so far.
  Lanes late_;                   // Of those, too; not counted there yet.
};

}  // namespace weft
