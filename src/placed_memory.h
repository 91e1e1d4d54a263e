#pragma once

#include "device_memory.h"
#include "foreign_memory.h"
#include "pinned_buffer.h"
#include <weft/contract.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace weft {

/// Device memory, or pinned host memory that the device reaches, as a placement says; or memory of somebody else, or
/// none. Move-only.
class PlacedMemory {
 public:
  PlacedMemory() noexcept = default;
  /// Device memory is undefined at first and for work that follows on `stream`; shared memory is zeroed. `what` names
  /// it in errors. Errors: those of DeviceMemory and PinnedBuffer.
  PlacedMemory(const std::shared_ptr<AllocationDomain>& domain, StreamHandle stream, std::uint64_t bytes,
               Placement placement, const std::string& what)
      : device_(placement == Placement::device ? DeviceMemory(domain, stream, bytes, what) : DeviceMemory()),
        pinned_(placement == Placement::shared ? PinnedBuffer(domain, bytes, what) : PinnedBuffer()) {}

  explicit PlacedMemory(ForeignMemory memory) noexcept : foreign_(std::move(memory)) {}

  /// 0 where there is none.
  [[nodiscard]] DeviceAddress address() const noexcept {
    if (foreign_.address() != 0) return foreign_.address();
    return pinned_.host() != nullptr ? pinned_.device() : device_.address();
  }
  /// Null for device memory.
  [[nodiscard]] std::byte* host() const noexcept {
    return foreign_.host() != nullptr ? foreign_.host() : pinned_.host();
  }

  /// For memory of somebody else; see ForeignMemory::on_release.
  void on_release(std::function<void()> release) noexcept { foreign_.on_release(std::move(release)); }

  /// Bytes that the budget of `domain` is yet to be charged when the memory is counted there.
  [[nodiscard]] std::uint64_t uncharged_bytes(const AllocationDomain& domain) const noexcept {
    return device_.uncharged_bytes(domain) + pinned_.uncharged_bytes(domain);
  }
  /// Counts the memory in another domain of the same device from now on; `charge` is of those bytes.
  void count_in(const std::shared_ptr<AllocationDomain>& domain, MemoryReservation charge) noexcept {
    if (pinned_.host() != nullptr) {
      pinned_.count_in(domain, std::move(charge));
    } else {
      device_.count_in(domain, std::move(charge));
    }
  }

 private:
  DeviceMemory device_;
  PinnedBuffer pinned_;
  ForeignMemory foreign_;
};

}  // namespace weft
