#pragma once

#include "allocation_domain.h"
#include <weft/budget.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace weft {

/// Device memory that is given back behind the work queued on its stream, counted as reserved and charged to its
/// domain's budget until then. Move-only.
class DeviceMemory {
 public:
  DeviceMemory() noexcept = default;
  /// For work that follows on `stream`; `what` names it in errors. Errors: those of MemoryBudget::reserve;
  /// `out_of_memory`; `invalid` for what an allocator gives that is no memory of the device.
  DeviceMemory(std::shared_ptr<AllocationDomain> domain, StreamHandle stream, std::uint64_t bytes,
               const std::string& what);
  /// The same, with a charge that was taken before.
  DeviceMemory(std::shared_ptr<AllocationDomain> domain, StreamHandle stream, std::uint64_t bytes,
               const std::string& what, MemoryReservation charge);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();

  [[nodiscard]] DeviceAddress address() const noexcept { return address_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  /// Bytes that the budget of `domain` is yet to be charged when the memory is counted there.
  [[nodiscard]] std::uint64_t uncharged_bytes(const AllocationDomain& domain) const noexcept;
  /// Counts the memory in another domain of the same device from now on; `charge` is of those bytes.
  void count_in(const std::shared_ptr<AllocationDomain>& domain, MemoryReservation charge) noexcept;

  /// Gives the memory back behind the work queued on its stream; what it is counted and charged as stays until this
  /// object goes.
  void release() noexcept;

 private:
  std::shared_ptr<AllocationDomain> domain_;  // Whose allocator takes it back.
  std::shared_ptr<AllocationDomain> home_;    // Where it is counted.
  MemoryReservation charge_;
  MemoryCharge reserved_;
  StreamHandle stream_ = StreamHandle::none;  // Frees are ordered on it.
  DeviceAddress address_ = 0;
  std::uint64_t bytes_ = 0;
};

/// Copies at once: queued on `stream` and waited for. One side may be pageable host memory, which nothing uses any more
/// when this returns or throws, unless the device is lost.
void copy_now(DeviceApi& api, StreamHandle stream, const CopyNode& copy, const std::string& action);

}  // namespace weft
