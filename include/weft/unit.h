#pragma once

#include <weft/budget.h>
#include <weft/export.h>

#include <atomic>
#include <concepts>
#include <cstdint>
#include <functional>
#include <mutex>
#include <typeinfo>
#include <utility>
#include <vector>

namespace weft {

/// Bytes of a unit that is charged as a whole: of memory that weft does not take itself.
struct UnitMemory {
  std::uint64_t peak_bytes = 0;      ///< Reserved before the loader runs.
  std::uint64_t resident_bytes = 0;  ///< What stays charged once it has; at least 1, at most the peak.
};

/// A type that tells whether it has work in flight.
template <class T>
concept ReportsIdle = requires(const T& value) {
  { value.is_idle() } -> std::convertible_to<bool>;
};

namespace detail {

/// What a Residency or a PlanCache keeps under a key. Its charge ends once its value's destructor has finished.
class WEFT_API Unit {
 public:
  explicit Unit(const std::type_info& type) noexcept : type_(&type) {}
  Unit(const Unit&) = delete;
  Unit& operator=(const Unit&) = delete;
  virtual ~Unit();

  /// Whether it may be destroyed for all that its owner says. Called under no lock; what it throws means that it may
  /// not.
  [[nodiscard]] virtual bool is_idle() const = 0;
  /// Whether somebody else than its keeper and its leases holds what it holds. Takes no lock.
  [[nodiscard]] virtual bool is_shared() const noexcept { return false; }

  [[nodiscard]] const std::type_info& type() const noexcept { return *type_; }
  [[nodiscard]] const std::vector<MemoryBudget>& budgets() const noexcept { return budgets_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_.load(std::memory_order_relaxed); }

  /// Whose shortage evicts it. Before it is published.
  void charge_to(std::vector<MemoryBudget> budgets) noexcept { budgets_ = std::move(budgets); }
  void hold(MemoryReservation charge) noexcept;
  /// Makes the charge larger or smaller. Errors: `invalid` for 0 bytes, or a unit without a charge; those of
  /// MemoryBudget::reserve, and then it is as it was.
  void resize(std::uint64_t bytes);

 private:
  const std::type_info* type_;
  std::vector<MemoryBudget> budgets_;
  std::mutex mutex_;
  MemoryReservation charge_;  // Guarded by mutex_.
  std::atomic<std::uint64_t> bytes_{0};
};

/// A unit of a type.
template <class T>
class UnitOf final : public Unit {
 public:
  template <class Loader>
  UnitOf(Loader& loader, const std::function<bool(const T&)>& is_idle)
      : Unit(typeid(T)), is_idle_(is_idle), value_(loader()) {}

  [[nodiscard]] bool is_idle() const override {
    if (is_idle_) return is_idle_(value_);
    if constexpr (ReportsIdle<T>) {
      return value_.is_idle();
    } else {
      return true;
    }
  }
  [[nodiscard]] T& value() noexcept { return value_; }

 private:
  std::function<bool(const T&)> is_idle_;
  T value_;
};

}  // namespace detail
}  // namespace weft
