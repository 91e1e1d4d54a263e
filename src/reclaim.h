#pragma once

#include <weft/budget.h>
#include <weft/error.h>

#include <cstdint>
#include <memory>
#include <optional>

namespace weft {

class DeviceApi;

/// Who keeps memory until the work that uses it has drained, and learns of that only by looking.
class Reclaimer {
 public:
  /// Lets go of what has drained by now. Thread-safe.
  virtual void reap() noexcept = 0;

 protected:
  Reclaimer() noexcept = default;
  ~Reclaimer() = default;
};

/// Has `reclaim` ask it, as long as it lives. Thread-safe.
void add_reclaimer(std::weak_ptr<Reclaimer> reclaimer);

/// Lets go of what has drained anywhere in the process. Not under a lock: allocators and weights that go call back, and
/// the last handle of a context may go here. Thread-safe; does nothing once the process is not running any more.
void reclaim();

/// The time of a use of a unit: later ones are larger, and no two are the same in a process. Never 0. Thread-safe.
[[nodiscard]] std::uint64_t next_use() noexcept;

/// Who keeps units that nobody uses at the moment, to be let go of when memory is short. Thread-safe.
class Evictor {
 public:
  /// The earliest last use, later than `after`, of a unit that is charged to `budget`, or of any where it is null, and
  /// that could go for all that can be told without asking its owner; 0 when there is none.
  [[nodiscard]] virtual std::uint64_t oldest_use(const MemoryBudget* budget, std::uint64_t after) noexcept = 0;
  /// Destroys the unit that was last used then, unless it turns out to be in use. Whether it did; its destructor has
  /// finished then.
  [[nodiscard]] virtual bool evict_used_at(std::uint64_t use) noexcept = 0;

 protected:
  Evictor() noexcept = default;
  ~Evictor() = default;
};

/// Has `evict_idle` ask it, as long as it lives. Thread-safe.
void add_evictor(std::weak_ptr<Evictor> evictor);

/// Destroys the least recently used idle unit that is charged to `budget`, and waits a moment for what it held to be
/// given back. False when there is none. As `reclaim`, not under a lock.
[[nodiscard]] bool evict_idle(const MemoryBudget& budget);

/// For a driver that is out of memory: lets go of what has drained and of every idle unit, waits until what was given
/// back has arrived, and returns the pool's idle memory to the driver. As `reclaim`, not under a lock.
void relieve(DeviceApi& api);

/// What is let go of, one step after another, for a call that lacks memory.
class Relief {
 public:
  Relief(const std::optional<MemoryBudget>& budget, DeviceApi& api) noexcept : budget_(budget), api_(api) {}

  /// Whether the call is worth another try. Not under a lock.
  [[nodiscard]] bool follows(const Error& error);

 private:
  const std::optional<MemoryBudget>& budget_;
  DeviceApi& api_;
  bool has_reclaimed_ = false;
  bool has_relieved_ = false;
};

/// Runs `take` again and again while it is short of memory and a relief follows. As `reclaim`, not under a lock.
template <class Take>
auto take_or_reclaim(const std::optional<MemoryBudget>& budget, DeviceApi& api, Take&& take) {
  for (Relief relief(budget, api);;) {
    std::optional<Error> shortage;
    try {
      return take();
    } catch (const Error& error) {
      shortage = error;
    }
    if (!relief.follows(*shortage)) throw *shortage;
  }
}

}  // namespace weft
