#pragma once

#include "allocation_domain.h"
#include <weft/budget.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace weft {

/// Pinned host memory, zeroed, counted as staging and charged to its domain's budget. Freed when destroyed: no queued
/// work may use it then. Move-only.
class PinnedBuffer {
 public:
  PinnedBuffer() noexcept = default;
  /// `what` names it in errors. Errors: those of MemoryBudget::reserve; `out_of_memory`.
  PinnedBuffer(std::shared_ptr<AllocationDomain> domain, std::uint64_t bytes, const std::string& what,
               Shortage shortage = Shortage::reclaim);
  /// The same, with a charge that was taken before.
  PinnedBuffer(std::shared_ptr<AllocationDomain> domain, std::uint64_t bytes, const std::string& what,
               MemoryReservation charge, Shortage shortage = Shortage::reclaim);
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  [[nodiscard]] std::byte* host() const noexcept { return memory_.host; }
  [[nodiscard]] DeviceAddress device() const noexcept { return memory_.device; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  /// Bytes that the budget of `domain` is yet to be charged when the memory is counted there.
  [[nodiscard]] std::uint64_t uncharged_bytes(const AllocationDomain& domain) const noexcept;
  /// Counts the memory in another domain of the same device from now on; `charge` is of those bytes.
  void count_in(const std::shared_ptr<AllocationDomain>& domain, MemoryReservation charge) noexcept;

 private:
  std::shared_ptr<AllocationDomain> domain_;
  MemoryReservation charge_;
  MemoryCharge staging_;
  PinnedMemory memory_;
  std::uint64_t bytes_ = 0;
};

}  // namespace weft
