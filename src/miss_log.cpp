#include "miss_log.h"

#include <algorithm>
#include <functional>
#include <new>
#include <optional>

namespace weft {

namespace {

// Bounds of the search for the nearest key, and of what is remembered of keys that are gone.
constexpr std::size_t kMostCached = 64;
constexpr std::size_t kMostGone = 4096;

std::size_t hash_of(const std::string& content) { return std::hash<std::string>()(content); }

}  // namespace

MissReason MissLog::reason_of(const std::string& content) const {
  const auto found = gone_.find(hash_of(content));
  if (found == gone_.end()) return MissReason::first;
  return found->second == UnitEnd::failed ? MissReason::failed : MissReason::evicted;
}

void MissLog::find_nearest(const PlanKey& key, PlanMiss& miss) const {
  std::optional<std::uint64_t> most;
  for (const std::shared_ptr<const PlanKey>& each : cached_) {
    PlanKey::Likeness likeness = key.compare(*each);
    if (likeness.first_difference.empty() || (most && likeness.equal_parts <= *most)) continue;
    most = likeness.equal_parts;
    miss.nearest = each->label();
    miss.difference = std::move(likeness.first_difference);
  }
}

void MissLog::miss(const PlanKey& key, bool is_replacement) {
  const std::lock_guard lock(mutex_);
  PlanMiss miss{.label = key.label(), .reason = MissReason::replaced, .nearest = {}, .difference = {}};
  if (!is_replacement) {
    miss.reason = reason_of(key.content());
    find_nearest(key, miss);
  }
  switch (miss.reason) {
    case MissReason::first:
      ++counters_.first;
      break;
    case MissReason::evicted:
      ++counters_.evicted;
      break;
    case MissReason::replaced:
      ++counters_.replaced;
      break;
    case MissReason::failed:
      ++counters_.failed;
      break;
  }
  misses_.push_back(std::move(miss));
  if (misses_.size() > kept_misses_) misses_.pop_front();
}

void MissLog::loaded(const PlanKey& key) {
  const std::lock_guard lock(mutex_);
  std::erase_if(cached_, [&](const auto& each) { return *each == key; });
  cached_.push_front(std::make_shared<const PlanKey>(key));
  if (cached_.size() > kMostCached) cached_.pop_back();
}

void MissLog::ended(const std::string& content, UnitEnd end) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(cached_, [&](const auto& each) { return each->content() == content; });
  const std::size_t hash = hash_of(content);
  try {
    std::list<std::size_t> place{hash};
    if (gone_.insert_or_assign(hash, end).second) gone_order_.splice(gone_order_.end(), place);
  } catch (const std::bad_alloc&) {
    return;  // A key that is forgotten counts as one that was never seen.
  }
  if (gone_order_.size() <= kMostGone) return;
  gone_.erase(gone_order_.front());
  gone_order_.pop_front();
}

PlanMissCounters MissLog::counters() const {
  const std::lock_guard lock(mutex_);
  return counters_;
}

std::vector<PlanMiss> MissLog::recent() const {
  const std::lock_guard lock(mutex_);
  return {misses_.begin(), misses_.end()};
}

}  // namespace weft
