#pragma once

#include "unit_store.h"
#include <weft/plan_cache.h>
#include <weft/plan_key.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft {

/// Why a cache had to load what it was asked for. Thread-safe; bounded.
class MissLog {
 public:
  /// Keeps so many misses.
  explicit MissLog(std::size_t kept_misses) noexcept : kept_misses_(kept_misses) {}

  void miss(const PlanKey& key, bool is_replacement);
  void loaded(const PlanKey& key);
  void ended(const std::string& content, UnitEnd end) noexcept;

  [[nodiscard]] PlanMissCounters counters() const;
  /// Oldest first.
  [[nodiscard]] std::vector<PlanMiss> recent() const;

 private:
  [[nodiscard]] MissReason reason_of(const std::string& content) const;
  void find_nearest(const PlanKey& key, PlanMiss& miss) const;

  const std::size_t kept_misses_;
  mutable std::mutex mutex_;
  PlanMissCounters counters_;  // Guarded by mutex_, as all below.
  std::deque<PlanMiss> misses_;
  std::list<std::shared_ptr<const PlanKey>> cached_;  // Latest first.
  // Keys that are gone, by the hash of their content: what a collision would spoil is a reason.
  std::unordered_map<std::size_t, UnitEnd> gone_;
  std::list<std::size_t> gone_order_;
};

}  // namespace weft
