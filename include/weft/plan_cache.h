#pragma once

#include <weft/deadline.h>
#include <weft/export.h>
#include <weft/model.h>
#include <weft/plan_key.h>
#include <weft/prepared.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

struct PlanCacheState;

struct PlanCacheOptions {
  std::size_t max_plans = 64;  ///< Kept and being loaded together.
  /// Of PreparedModel::memory_bytes over all plans; weights are their definition's.
  std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
  std::size_t kept_misses = 64;  ///< That PlanCache::recent_misses tells.
};

/// Why a plan had to be loaded.
enum class MissReason : std::uint8_t {
  first,     ///< Never seen, or so long ago that it is forgotten.
  evicted,   ///< It was here, and was evicted or forgotten.
  replaced,  ///< PlanCache::replace asked for another.
  failed,    ///< The last load failed.
};

/// "first", "evicted", "replaced" or "failed".
[[nodiscard]] WEFT_API std::string_view to_string(MissReason reason) noexcept;

/// One miss.
struct PlanMiss {
  std::string label;  ///< Of the key.
  MissReason reason = MissReason::first;
  /// The cached key, of the 64 last loaded, with the most equal parts: its label, and the first part that differs.
  /// Empty where there is none.
  std::string nearest;
  std::string difference;
  friend bool operator==(const PlanMiss&, const PlanMiss&) = default;
};

/// Misses so far by their reason.
struct PlanMissCounters {
  std::uint64_t first = 0;
  std::uint64_t evicted = 0;
  std::uint64_t replaced = 0;
  std::uint64_t failed = 0;
  friend bool operator==(const PlanMissCounters&, const PlanMissCounters&) = default;
};

/// What a cache counts. A snapshot.
struct PlanCacheStatistics {
  std::uint64_t plans = 0;  ///< Kept, now.
  std::uint64_t bytes = 0;  ///< That they take, now.
  // So far:
  std::uint64_t hits = 0;  ///< Joined loads among them.
  std::uint64_t misses = 0;
  PlanMissCounters misses_by_reason;
  std::uint64_t evictions = 0;  ///< Forgotten plans among them.
  std::uint64_t failed = 0;     ///< Loads that came to nothing.
  friend bool operator==(const PlanCacheStatistics&, const PlanCacheStatistics&) = default;
};

/// Prepared models by what they are made of, bounded by their number and their bytes.
///
/// A plan is loaded once, however many threads ask for it; they wait for it until their deadlines. What goes to make
/// room is the least recently used plan that nobody else has a handle to, and that has no run in flight; so it goes for
/// a budget's sake too, where its context has one that is short. Loaders and destructors run under no lock of the
/// cache's.
///
/// Thread-safe. Destroying it drops its handles alone: plans that are in use live on.
class WEFT_API PlanCache {
 public:
  using Loader = std::function<PreparedModel()>;

  /// Errors: `invalid` for room for 0 plans or 0 bytes.
  explicit PlanCache(PlanCacheOptions options = {});
  PlanCache(const PlanCache&) = delete;
  PlanCache& operator=(const PlanCache&) = delete;
  ~PlanCache();

  /// The fragment prepared so, from the cache where an equal one is there. Empty when another thread still prepares it
  /// at the deadline. Errors: those of ModelFragment::prepare, for all who wait for it, and then it is forgotten and
  /// the next call prepares anew; `busy` when the cache is full and all its plans are pinned, being loaded or in use;
  /// `invalid` for a plan of more bytes than the cache takes. Cost: the key, a pass over the commands; a lock. Who asks
  /// for each request keeps the PlanKey and uses the form below.
  [[nodiscard]] std::optional<PreparedModel> get(const ModelFragment& fragment, const PrepareOptions& options,
                                                 Deadline deadline);
  /// The plan under a key of the caller's, made by `loader` where there is none. Its bytes are known once it is made.
  /// Errors: as above, with what the loader throws; `invalid` for a key that its own loader asks for, at whatever
  /// remove.
  [[nodiscard]] std::optional<PreparedModel> get(const PlanKey& key, const Loader& loader, Deadline deadline);

  /// Has `loader` make another plan for the key, which is found from its return on; until then it is the old one, whose
  /// runs finish, and which goes with its last handle. Errors, and then the old one stays: what the loader throws;
  /// `busy` while the key is being loaded or replaced, or when the cache is full, of bytes with both.
  PreparedModel replace(const PlanKey& key, const Loader& loader);

  /// Destroys the plan and returns when that is done; false where there is none. Errors: `busy`, with the reason, while
  /// it is loaded, pinned, or in use.
  bool evict(const PlanKey& key);
  /// Lets go of the plan whoever uses it: runs in flight finish, and it goes with its last handle. False where there is
  /// none. Errors: `busy` while it is being loaded.
  bool forget(const PlanKey& key);

  /// Keeps the plan from eviction until it is unpinned as often. False where it is not loaded.
  bool pin(const PlanKey& key);
  /// Errors: `invalid` for a plan that is not pinned.
  void unpin(const PlanKey& key);

  [[nodiscard]] PlanCacheStatistics statistics() const;
  /// The last PlanCacheOptions::kept_misses misses, oldest first.
  [[nodiscard]] std::vector<PlanMiss> recent_misses() const;

 private:
  std::shared_ptr<PlanCacheState> state_;
};

}  // namespace weft
