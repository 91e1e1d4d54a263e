#include "reclaim.h"

#include "device/process_state.h"

#include <mutex>
#include <utility>
#include <vector>

namespace weft {

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<Reclaimer>> reclaimers;  // Guarded by mutex.
};

Registry& registry() {
  static auto* const instance = new Registry;  // Never destroyed: handles may go while the process ends.
  return *instance;
}

}  // namespace

void add_reclaimer(std::weak_ptr<Reclaimer> reclaimer) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::erase_if(all.reclaimers, [](const std::weak_ptr<Reclaimer>& each) { return each.expired(); });
  all.reclaimers.push_back(std::move(reclaimer));
}

void reclaim() {
  if (process_state() != ProcessState::running) return;  // The lock may be held by a thread that is gone.
  std::vector<std::shared_ptr<Reclaimer>> live;          // Used and let go outside the lock.
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    live.reserve(all.reclaimers.size());
    for (const std::weak_ptr<Reclaimer>& each : all.reclaimers) {
      if (std::shared_ptr<Reclaimer> reclaimer = each.lock()) live.push_back(std::move(reclaimer));
    }
  }
  for (const std::shared_ptr<Reclaimer>& each : live) each->reap();
}

}  // namespace weft
