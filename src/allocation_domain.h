#pragma once

#include "device/device_api.h"
#include "device/handles.h"
#include <weft/budget.h>
#include <weft/context.h>
#include <weft/statistics.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
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

/// What a device's graphs take, in bytes.
struct GraphCost {
  std::uint64_t executable_bytes = 0;  ///< Of an executable.
  std::uint64_t node_bytes = 0;        ///< And of each of its nodes.
};

/// The cost of graphs where a context has measured it. Thread-safe.
struct GraphCalibration {
  std::mutex mutex;
  std::optional<GraphCost> cost;  ///< Guarded by mutex.
};

/// What becomes of a charge that does not fit in the budget now, or of an allocation that the driver has no memory for.
enum class Shortage : std::uint8_t {
  reclaim,  ///< Tried again behind what can be reclaimed or evicted, under no lock (see reclaim.h).
  refuse,   ///< `busy`, or `out_of_memory`, at once: for who holds a lock.
};

/// Where memory comes from and how it is counted and charged: an open device, a stream that frees are ordered on, an
/// allocator, a budget and counters. Each context and each session has one; its memory keeps it alive.
class AllocationDomain {
 public:
  AllocationDomain(std::shared_ptr<DeviceApi> api, Allocator allocator, std::optional<MemoryBudget> budget);
  /// For weft's own fixed overhead, which is taken under locks: without a budget, its counters in nobody's statistics,
  /// without a stream, and refused at once where the driver is out of memory.
  explicit AllocationDomain(std::shared_ptr<DeviceApi> api) noexcept;

  [[nodiscard]] const std::shared_ptr<DeviceApi>& api() const noexcept { return api_; }
  [[nodiscard]] StreamHandle stream() const noexcept { return stream_.get(); }
  [[nodiscard]] const std::optional<MemoryBudget>& budget() const noexcept { return budget_; }

  /// Charges the budget, where there is one. Errors: those of MemoryBudget::reserve.
  [[nodiscard]] MemoryReservation charge(std::uint64_t bytes, Shortage shortage = Shortage::reclaim) const;
  /// Memory of `bytes`, charged by the caller, for work that follows on `stream`. A driver, or an allocator, that is
  /// out of memory is asked once more behind a relief (see reclaim.h). Errors: `out_of_memory`; `invalid` for what an
  /// allocator gives that is no memory of the device.
  [[nodiscard]] DeviceAddress allocate(StreamHandle stream, std::uint64_t bytes);
  /// Pinned host memory, charged by the caller, in the same way. Errors: `out_of_memory`.
  [[nodiscard]] PinnedMemory allocate_pinned(std::uint64_t bytes, Shortage shortage = Shortage::reclaim);
  /// Gives it back in the stream's order.
  void release(StreamHandle stream, DeviceAddress address, std::uint64_t bytes) noexcept;

  MemoryCounter requested;
  MemoryCounter reserved;
  MemoryCounter staging;
  MemoryCounter graphs;
  GraphCalibration graph_calibration;

 private:
  /// The status of `call`, which is made once more behind a relief where the first comes to nothing for want of memory.
  template <class Call>
  [[nodiscard]] DeviceStatus relieved(Shortage shortage, Call&& call);

  std::shared_ptr<DeviceApi> api_;
  UniqueStream stream_;
  Allocator allocator_;
  std::optional<MemoryBudget> budget_;
  const Shortage at_most_;  // What becomes of a shortage, whatever the call says.
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
