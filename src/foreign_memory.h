#pragma once

#include "device/device_api.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>

namespace weft {

/// Memory of somebody else, which they are told when this goes. Move-only.
class ForeignMemory {
 public:
  ForeignMemory() noexcept = default;
  /// `host` is null for memory that the host cannot read.
  ForeignMemory(DeviceAddress address, std::byte* host) noexcept : address_(address), host_(host) {}
  ForeignMemory(ForeignMemory&& other) noexcept { *this = std::move(other); }
  ForeignMemory& operator=(ForeignMemory&& other) noexcept {
    std::swap(address_, other.address_);
    std::swap(host_, other.host_);
    release_.swap(other.release_);
    return *this;
  }
  /// Calls the release, but where the process ends: what it would use may be gone then.
  ~ForeignMemory();

  [[nodiscard]] DeviceAddress address() const noexcept { return address_; }
  [[nodiscard]] std::byte* host() const noexcept { return host_; }

  /// Must not throw.
  void on_release(std::function<void()> release) noexcept { release_ = std::move(release); }

 private:
  DeviceAddress address_ = 0;
  std::byte* host_ = nullptr;
  std::function<void()> release_;
};

/// Refuses bytes that are no memory of the device, or start at no multiple of kArenaAlignment. Errors: `invalid`.
void require_device_range(DeviceApi& api, DeviceAddress address, std::uint64_t bytes);

}  // namespace weft
