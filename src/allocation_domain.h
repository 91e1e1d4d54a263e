#pragma once

#include "device/device_api.h"
#include "device/handles.h"
#include <weft/budget.h>
#include <weft/context.h>
#include <weft/statistics.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

namespace weft {

/// Thread-safe counters of one kind of memory.
class MemoryCounter {
 public:
  void add(std::uint64_t bytes, std::uint64_t allocations) noexcept;
  void subtract(std::uint64_t bytes) noexcept;
  [[nodiscard]] MemoryCounters snapshot() const noexcept;

 private:
  std::atomic<std::uint64_t> live_{0};
  std::atomic<std::uint64_t> peak_{0};
  std::atomic<std::uint64_t> allocations_{0};
};

/// What becomes of a charge that does not fit in the budget now.
enum class Shortage : std::uint8_t {
  reclaim,  ///< Tried once more behind a reclaim, under no lock (see reclaim.h).
  refuse,   ///< `busy` at once: for who holds a lock.
};

/// Where memory comes from and how it is counted and charged: an open device, a stream that frees are ordered on, an
/// allocator, a budget and counters. Each context and each session has one; its memory keeps it alive.
class AllocationDomain {
 public:
  AllocationDomain(std::shared_ptr<DeviceApi> api, Allocator allocator, std::optional<MemoryBudget> budget);
  /// For weft's own fixed overhead: without a budget, its counters in nobody's statistics, and without a stream.
  explicit AllocationDomain(std::shared_ptr<DeviceApi> api) noexcept;

  [[nodiscard]] const std::shared_ptr<DeviceApi>& api() const noexcept { return api_; }
  [[nodiscard]] StreamHandle stream() const noexcept { return stream_.get(); }
  [[nodiscard]] const std::optional<MemoryBudget>& budget() const noexcept { return budget_; }

  /// Charges the budget, where there is one. Errors: those of MemoryBudget::reserve.
  [[nodiscard]] MemoryReservation charge(std::uint64_t bytes, Shortage shortage = Shortage::reclaim) const;
  /// Memory of `bytes`, charged by the caller, for work that follows on `stream`.
  [[nodiscard]] DeviceAddress allocate(StreamHandle stream, std::uint64_t bytes);
  /// Gives it back in the stream's order.
  void release(StreamHandle stream, DeviceAddress address, std::uint64_t bytes) noexcept;

  MemoryCounter requested;
  MemoryCounter reserved;
  MemoryCounter staging;

 private:
  std::shared_ptr<DeviceApi> api_;
  UniqueStream stream_;
  Allocator allocator_;
  std::optional<MemoryBudget> budget_;
};

/// A share of one of a domain's counters, given back when destroyed. Move-only.
class MemoryCharge {
 public:
  MemoryCharge() noexcept = default;
  MemoryCharge(std::shared_ptr<AllocationDomain> domain, MemoryCounter AllocationDomain::*counter, std::uint64_t bytes,
               std::uint64_t allocations) noexcept;
  MemoryCharge(MemoryCharge&& other) noexcept;
  MemoryCharge& operator=(MemoryCharge&& other) noexcept;
  ~MemoryCharge();

 private:
  std::shared_ptr<AllocationDomain> domain_;
  MemoryCounter AllocationDomain::*counter_ = nullptr;
  std::uint64_t bytes_ = 0;
};

}  // namespace weft
