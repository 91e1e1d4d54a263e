#pragma once

#include "device/device_api.h"

#include <cstddef>
#include <cstdint>
#include <map>

namespace weft {

/// The memory of a host device: what is allocated, of which kind, and whether its free is queued.
///
/// Not thread-safe. Memory comes from the process and goes back to it at once when released, so that AddressSanitizer
/// sees every use after it.
class HostMemory {
 public:
  struct Allocation {
    DeviceAddress base = 0;
    std::uint64_t bytes = 0;
    AddressInfo::Kind kind = AddressInfo::Kind::unknown;
    bool free_queued = false;
  };

  explicit HostMemory(std::uint64_t total_bytes) noexcept : total_bytes_(total_bytes) {}
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;
  ~HostMemory();

  /// Device memory holds a pattern, pinned memory zeros. Zero when the device or the process has no more.
  [[nodiscard]] DeviceAddress allocate(std::uint64_t bytes, AddressInfo::Kind kind);
  void release(DeviceAddress base) noexcept;

  /// The live allocation that holds the byte at `address`, or null.
  [[nodiscard]] Allocation* find(DeviceAddress address) noexcept;
  /// Whether all bytes stand in one live allocation.
  [[nodiscard]] bool holds(DeviceAddress address, std::uint64_t bytes) noexcept;
  /// The same, and its free is not queued: new work may use it.
  [[nodiscard]] bool takes_work(DeviceAddress address, std::uint64_t bytes) noexcept;
  /// Whether any of the bytes stands in a live allocation.
  [[nodiscard]] bool touches(DeviceAddress address, std::uint64_t bytes) const noexcept;

  void trim(std::uint64_t keep_bytes) noexcept;
  [[nodiscard]] MemoryInfo info() const noexcept;
  [[nodiscard]] std::size_t count(AddressInfo::Kind kind) const noexcept;

 private:
  std::uint64_t total_bytes_;
  std::uint64_t used_bytes_ = 0;      ///< Device memory only.
  std::uint64_t reserved_bytes_ = 0;  ///< What a pool would hold: the most in use since the last trim.
  std::map<DeviceAddress, Allocation> allocations_;
};

}  // namespace weft
