#pragma once

#include "allocation_domain.h"
#include "device_memory.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace weft {

/// A weight's memory, and the request for it. Immutable once its session is frozen.
///
/// Held by all that uses it: who submits work keeps what the work uses until it has drained, so the last one to let go
/// may free it.
class Weight {
 public:
  /// Memory for a weight, counted in `domain`.
  Weight(const std::shared_ptr<AllocationDomain>& domain, std::uint64_t bytes, const std::string& label);
  /// Memory of somebody else. Counted as requested alone.
  Weight(const std::shared_ptr<AllocationDomain>& domain, DeviceAddress address, std::uint64_t bytes) noexcept;
  Weight(const Weight&) = delete;
  Weight& operator=(const Weight&) = delete;
  ~Weight();

  [[nodiscard]] DeviceAddress address() const noexcept { return address_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  /// Called when the weight is gone; must not throw.
  void on_release(std::function<void()> release) noexcept { release_ = std::move(release); }

  /// Bytes that the budget of `domain` is yet to be charged when it adopts the weight.
  [[nodiscard]] std::uint64_t uncharged_bytes(const AllocationDomain& domain) const noexcept {
    return memory_.uncharged_bytes(domain);
  }
  /// Hands the weight to another domain of the same device, as it is: no copy. `charge` is of those bytes.
  void adopt(const std::shared_ptr<AllocationDomain>& domain, MemoryReservation charge) noexcept;

 private:
  DeviceMemory memory_;  // Empty for memory of somebody else.
  std::function<void()> release_;
  DeviceAddress address_;
  std::uint64_t bytes_;
  MemoryCharge requested_;
};

}  // namespace weft
