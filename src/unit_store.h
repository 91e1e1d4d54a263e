#pragma once

#include "reclaim.h"
#include <weft/deadline.h>
#include <weft/error.h>
#include <weft/unit.h>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <typeinfo>
#include <unordered_map>
#include <utility>

namespace weft {

/// Why a key is not in a store any more.
enum class UnitEnd : std::uint8_t { evicted, failed };

struct UnitCounters {
  std::uint64_t units = 0;
  std::uint64_t bytes = 0;
  std::uint64_t hits = 0;
  std::uint64_t misses = 0;
  std::uint64_t evictions = 0;
  std::uint64_t failed = 0;
};

/// Units by key: each loaded once at a time, shared by who asks, and evicted when they are idle. Thread-safe.
///
/// Loaders, destructors, predicates and what is told of an end run under no lock.
class UnitStore final : public Evictor, public std::enable_shared_from_this<UnitStore> {
 public:
  using Maker = std::function<std::shared_ptr<detail::Unit>()>;
  /// A key, and how messages call it: "unit \"x\"".
  struct Key {
    std::string content;
    std::string name;
  };

  /// Told of each key that is not there any more; must not throw.
  using OnEnd = std::function<void(const std::string& content, UnitEnd end)>;

  /// At most so many units, those that are being loaded among them.
  explicit UnitStore(std::size_t most_units, OnEnd on_end = {}) : most_units_(most_units), on_end_(std::move(on_end)) {}
  UnitStore(const UnitStore&) = delete;
  UnitStore& operator=(const UnitStore&) = delete;

  /// The unit under the key, made by `make` where there is none; null when another thread still loads it at the
  /// deadline. Errors: what `make` throws; `invalid` for another type, or a wait that would be for the caller itself;
  /// `busy` when the store is full and nothing can be evicted.
  [[nodiscard]] std::shared_ptr<detail::Unit> get(const Key& key, const std::type_info& type, const Maker& make,
                                                  Deadline deadline);
  /// The unit under the key if it is loaded, else null. Errors: `invalid` for another type.
  [[nodiscard]] std::shared_ptr<detail::Unit> find(const Key& key, const std::type_info& type);
  /// Makes a unit that takes the place of the one under the key, which is found until then. Errors: those of `make`,
  /// and then the old one stays; `busy` while the key is being loaded or replaced, or as `get`.
  [[nodiscard]] std::shared_ptr<detail::Unit> replace(const Key& key, const std::type_info& type, const Maker& make);

  /// As Residency::evict.
  bool evict(const Key& key);
  /// Lets go of the unit, whoever uses it, which then goes with its last user. False where there is none. Errors:
  /// `busy` while it is being loaded or replaced.
  bool forget(const Key& key);
  bool pin(const Key& key);
  void unpin(const Key& key);
  /// Forgets all units that are loaded, and returns when no other thread is evicting one. For who drops the store: what
  /// is being loaded stays.
  void clear() noexcept;

  [[nodiscard]] UnitCounters counters() const;

  [[nodiscard]] std::uint64_t oldest_use(const MemoryBudget* budget, std::uint64_t after) noexcept override;
  [[nodiscard]] bool evict_used_at(std::uint64_t use) noexcept override;

 private:
  struct Entry;
  class Loading;
  class Evicting;
  using EntryPtr = std::shared_ptr<Entry>;
  using Lock = std::unique_lock<std::mutex>;

  // All with the lock held, which those that take it may let go of meanwhile.
  [[nodiscard]] EntryPtr find_entry(const std::string& key) const;
  [[nodiscard]] std::shared_ptr<detail::Unit> use(Entry& entry);
  [[nodiscard]] bool may_go(const Entry& entry, std::uint32_t looking) const noexcept;
  [[nodiscard]] std::uint64_t find_oldest(const MemoryBudget* budget, std::uint64_t after) const noexcept;
  void make_room(Lock& lock, const Key& key);
  [[nodiscard]] bool evict_entry(Lock& lock, const EntryPtr& entry);
  [[nodiscard]] std::shared_ptr<detail::Unit> load(Lock& lock, const Key& key, const EntryPtr& entry,
                                                   const Maker& make);
  [[nodiscard]] std::shared_ptr<detail::Unit> await(Lock& lock, const Key& key, const EntryPtr& entry,
                                                    Deadline deadline);
  void require_type(const Key& key, const Entry& entry, const std::type_info& type) const;
  void require_no_circle(const Key& key, const Entry& entry) const;

  const std::size_t most_units_;
  const OnEnd on_end_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, EntryPtr> entries_;  // Guarded by mutex_, as the next two.
  UnitCounters counters_;
  std::uint32_t evicting_ = 0;  // Evictions that have let go of the lock.
  std::condition_variable has_evicted_;
};

}  // namespace weft
