#include "reclaim.h"

#include "device/device_api.h"
#include "device/process_state.h"

#include <atomic>
#include <chrono>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace weft {

namespace {

// How long `relieve` waits for frees that are queued on streams: until so many looks in a row have seen none arrive.
constexpr int kQuietLooks = 5;
constexpr int kMostLooks = 100;
constexpr std::chrono::milliseconds kLookPause(1);

// An idle model's last run may be readable before its stream has drained, which is a matter of microseconds; what the
// model held goes behind it.
constexpr int kDrainLooks = 100;
constexpr std::chrono::microseconds kDrainPause(100);

/// All of one kind in the process, held weakly.
template <class Member>
class Registry {
 public:
  void add(std::weak_ptr<Member> member) {
    const std::lock_guard lock(mutex_);
    std::erase_if(members_, [](const std::weak_ptr<Member>& each) { return each.expired(); });
    members_.push_back(std::move(member));
  }

  /// Those that live, to be used and let go of outside the lock.
  [[nodiscard]] std::vector<std::shared_ptr<Member>> live() {
    std::vector<std::shared_ptr<Member>> live;
    const std::lock_guard lock(mutex_);
    live.reserve(members_.size());
    for (const std::weak_ptr<Member>& each : members_) {
      if (std::shared_ptr<Member> member = each.lock()) live.push_back(std::move(member));
    }
    return live;
  }

 private:
  std::mutex mutex_;
  std::vector<std::weak_ptr<Member>> members_;  // Guarded by mutex_.
};

// Never destroyed: handles may go while the process ends.
Registry<Reclaimer>& reclaimers() {
  static auto* const instance = new Registry<Reclaimer>;
  return *instance;
}

Registry<Evictor>& evictors() {
  static auto* const instance = new Registry<Evictor>;
  return *instance;
}

// The registries' locks may be held by threads that are gone.
bool is_running() noexcept { return process_state() == ProcessState::running; }

/// Destroys the least recently used idle unit that was used before `until` and is charged to `budget`, or any where it
/// is null.
bool evict_oldest(const MemoryBudget* budget, std::uint64_t until) {
  if (!is_running()) return false;
  const std::vector<std::shared_ptr<Evictor>> all = evictors().live();
  for (std::uint64_t after = 0;;) {
    std::uint64_t oldest = 0;
    Evictor* owner = nullptr;
    for (const std::shared_ptr<Evictor>& each : all) {
      const std::uint64_t use = each->oldest_use(budget, after);
      if (use == 0 || use >= until || (owner != nullptr && use >= oldest)) continue;
      oldest = use;
      owner = each.get();
    }
    if (owner == nullptr) return false;
    if (owner->evict_used_at(oldest)) return true;
    after = oldest;
  }
}

}  // namespace

void add_reclaimer(std::weak_ptr<Reclaimer> reclaimer) { reclaimers().add(std::move(reclaimer)); }

void reclaim() {
  if (!is_running()) return;
  for (const std::shared_ptr<Reclaimer>& each : reclaimers().live()) each->reap();
}

std::uint64_t next_use() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

void add_evictor(std::weak_ptr<Evictor> evictor) { evictors().add(std::move(evictor)); }

bool evict_idle(const MemoryBudget& budget) {
  const std::uint64_t used = budget.used_bytes();
  if (!evict_oldest(&budget, std::numeric_limits<std::uint64_t>::max())) return false;
  reclaim();
  for (int look = 0; budget.used_bytes() >= used && look < kDrainLooks; ++look) {
    std::this_thread::sleep_for(kDrainPause);
    reclaim();
  }
  return true;
}

void relieve(DeviceApi& api) {
  if (!is_running()) return;
  reclaim();
  for (const std::uint64_t until = next_use(); evict_oldest(nullptr, until);) {
  }
  MemoryInfo last;
  if (!api.memory_info(last).ok()) return;
  int quiet = 0;
  for (int look = 0; quiet < kQuietLooks && look < kMostLooks; ++look) {
    std::this_thread::sleep_for(kLookPause);
    reclaim();
    MemoryInfo now;
    if (!api.memory_info(now).ok()) return;
    quiet = now.pool_used_bytes < last.pool_used_bytes ? 0 : quiet + 1;
    last = now;
  }
  static_cast<void>(api.trim(0));  // The call that is tried again tells what is wrong.
}

bool Relief::follows(const Error& error) {
  if (error.code() == ErrorCode::out_of_memory) {
    if (std::exchange(has_relieved_, true)) return false;
    relieve(api_);
    return true;
  }
  if (error.code() != ErrorCode::busy) return false;
  if (!std::exchange(has_reclaimed_, true)) {
    reclaim();
    return true;
  }
  return budget_ && evict_idle(*budget_);
}

}  // namespace weft
