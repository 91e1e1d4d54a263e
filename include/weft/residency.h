#pragma once

#include <weft/budget.h>
#include <weft/deadline.h>
#include <weft/export.h>
#include <weft/unit.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>

namespace weft {

class UnitStore;

/// A use of a unit, which is not evicted meanwhile. A shared handle; as thread-safe as the value itself. It keeps the
/// unit, not its residency.
template <class T>
class UnitLease {
 public:
  [[nodiscard]] T& operator*() const noexcept { return unit_->value(); }
  [[nodiscard]] T* operator->() const noexcept { return &unit_->value(); }

  /// Changes what the unit is charged: before it grows, and after it has shrunk. Others may be evicted for it, it is
  /// not itself. Of several at once the last to return decides. Errors: `invalid` for 0 bytes, for a unit whose
  /// allocations are charged one by one, and for more than the ceiling; `busy`; and then nothing changes.
  void resize(std::uint64_t bytes) const { unit_->resize(bytes); }

 private:
  friend class Residency;
  explicit UnitLease(std::shared_ptr<detail::Unit> unit) noexcept
      : unit_(std::static_pointer_cast<detail::UnitOf<T>>(std::move(unit))) {}
  std::shared_ptr<detail::UnitOf<T>> unit_;
};

/// What a residency counts. A snapshot.
struct ResidencyStatistics {
  std::uint64_t units = 0;  ///< Loaded and kept, now.
  std::uint64_t bytes = 0;  ///< That they are charged as a whole, now.
  // So far:
  std::uint64_t hits = 0;  ///< Joined loads among them.
  std::uint64_t misses = 0;
  std::uint64_t evictions = 0;
  std::uint64_t failed = 0;  ///< Loads that came to nothing.
  friend bool operator==(const ResidencyStatistics&, const ResidencyStatistics&) = default;
};

/// Units (models, their weights, or anything else that takes memory) loaded by key under one budget's ceiling, and
/// evicted when they are idle and memory is short, the least recently used first.
///
/// Whoever charges the budget, a context that is given it or MemoryBudget::reserve, evicts units as it needs. A unit
/// stays while it is leased, pinned, being loaded, or not idle for all that it says itself: by a predicate, or by a
/// member `bool is_idle() const` of its type, which must not throw. Loaders, predicates and destructors run under no
/// lock of weft's; destructors and predicates run on whichever thread needs memory.
///
/// Thread-safe. Destroying it drops its units; those that are leased live as long as their leases. It returns when the
/// predicates and destructors that other threads have begun to evict its units have returned. The budget outlives it.
class WEFT_API Residency {
 public:
  explicit Residency(MemoryBudget budget);
  Residency(const Residency&) = delete;
  Residency& operator=(const Residency&) = delete;
  ~Residency();

  [[nodiscard]] const MemoryBudget& budget() const noexcept;

  /// A lease of the unit under `key`. Where there is none, `loader()` makes it: once, however many threads ask; they
  /// wait for it until the deadline, and get nothing when it passes. Each allocation is charged by itself: the loader
  /// makes weft's objects in contexts and sessions that are given the same budget, which evict other units as they need
  /// room, and give the charge back with the memory. `is_idle(value)` tells whether the unit may be evicted; without it
  /// T::is_idle, where there is one. Errors: what the loader throws, for all who wait for it, and then it is forgotten
  /// and the next call loads anew; `invalid` for a key that holds another type, or one that its own loader asks for, at
  /// whatever remove.
  template <class Loader, class T = std::invoke_result_t<Loader&>>
  [[nodiscard]] std::optional<UnitLease<T>> load(std::string_view key, Loader&& loader, Deadline deadline,
                                                 std::type_identity_t<std::function<bool(const T&)>> is_idle = {}) {
    return lease<T>(load_unit(
        key, typeid(T), nullptr, [&] { return std::make_shared<detail::UnitOf<T>>(loader, is_idle); }, deadline));
  }

  /// The same for memory that weft does not take itself: the peak is reserved before the loader runs, and shrinks to
  /// what is resident afterwards. That charge ends when the unit's destructor has finished, by which time the memory
  /// must have been given back. Errors: also `invalid` for resident bytes of 0 or beyond the peak, or a peak beyond the
  /// ceiling; `busy` when the peak does not fit and nothing more can be evicted.
  template <class Loader, class T = std::invoke_result_t<Loader&>>
  [[nodiscard]] std::optional<UnitLease<T>> load(std::string_view key, UnitMemory memory, Loader&& loader,
                                                 Deadline deadline,
                                                 std::type_identity_t<std::function<bool(const T&)>> is_idle = {}) {
    return lease<T>(load_unit(
        key, typeid(T), &memory, [&] { return std::make_shared<detail::UnitOf<T>>(loader, is_idle); }, deadline));
  }

  /// A lease of the unit under `key` where it is loaded, which counts as a use. Errors: `invalid` for another type.
  template <class T>
  [[nodiscard]] std::optional<UnitLease<T>> find(std::string_view key) {
    return lease<T>(find_unit(key, typeid(T)));
  }

  /// Destroys the unit under `key` and returns when its destructor has finished; false where there is none. Errors:
  /// `busy`, with the reason, while it is loaded, leased, pinned or not idle.
  bool evict(std::string_view key);

  /// Keeps the unit from eviction until it is unpinned as often. False where it is not loaded.
  bool pin(std::string_view key);
  /// Errors: `invalid` for a unit that is not pinned.
  void unpin(std::string_view key);

  [[nodiscard]] ResidencyStatistics statistics() const;

 private:
  using Maker = std::function<std::shared_ptr<detail::Unit>()>;
  template <class T>
  static std::optional<UnitLease<T>> lease(std::shared_ptr<detail::Unit> unit) {
    if (unit == nullptr) return {};
    return UnitLease<T>(std::move(unit));
  }
  std::shared_ptr<detail::Unit> load_unit(std::string_view key, const std::type_info& type, const UnitMemory* memory,
                                          const Maker& make, Deadline deadline);
  std::shared_ptr<detail::Unit> find_unit(std::string_view key, const std::type_info& type);

  MemoryBudget budget_;
  std::shared_ptr<UnitStore> store_;
};

}  // namespace weft
