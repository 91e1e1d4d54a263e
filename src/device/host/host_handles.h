#pragma once

#include "device/host/host_status.h"

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>

namespace weft {

/// Live objects by handle. Handles are numbers that are never used twice, so that use after destroy is told apart from
/// a handle that never was. Not thread-safe.
template <class Handle, class Object>
class HostHandles {
 public:
  /// Both texts must be static.
  HostHandles(const char* unknown, const char* destroyed) : unknown_(unknown), destroyed_(destroyed) {}

  [[nodiscard]] Handle insert(Object object) {
    const auto handle = static_cast<Handle>(last_ + 1);
    objects_.emplace(handle, std::move(object));
    ++last_;
    return handle;
  }
  [[nodiscard]] Object* find(Handle handle) noexcept {
    const auto found = objects_.find(handle);
    return found == objects_.end() ? nullptr : &found->second;
  }
  /// Why `find` has nothing for this handle.
  [[nodiscard]] DeviceStatus missing(Handle handle) const noexcept {
    const auto number = static_cast<std::uint64_t>(handle);
    return misuse(number == 0 || number > last_ ? unknown_ : destroyed_);
  }
  [[nodiscard]] DeviceStatus erase(Handle handle) noexcept {
    return objects_.erase(handle) == 1 ? DeviceStatus{} : missing(handle);
  }

  [[nodiscard]] std::size_t size() const noexcept { return objects_.size(); }
  template <class Visit>
  void for_each(Visit&& visit) const {
    for (const auto& [handle, object] : objects_) visit(object);
  }

 private:
  const char* unknown_;
  const char* destroyed_;
  std::uint64_t last_ = 0;
  std::unordered_map<Handle, Object> objects_;
};

}  // namespace weft
