#pragma once

#include "device/device_api.h"

#include <memory>
#include <utility>

namespace weft {

/// Owns one handle of a device and destroys it with the device's own verb. Move-only. Destruction should fail only when
/// the device is lost, and then there is nothing left to destroy; any other failure is logged.
template <class Handle, DeviceStatus (DeviceApi::*Destroy)(Handle) noexcept>
class UniqueHandle {
 public:
  UniqueHandle() noexcept = default;
  UniqueHandle(std::shared_ptr<DeviceApi> api, Handle handle) noexcept : api_(std::move(api)), handle_(handle) {}
  UniqueHandle(UniqueHandle&& other) noexcept
      : api_(std::move(other.api_)), handle_(std::exchange(other.handle_, Handle::none)) {}
  UniqueHandle& operator=(UniqueHandle&& other) noexcept {
    std::swap(api_, other.api_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~UniqueHandle() {
    if (handle_ != Handle::none) log_swallowed((api_.get()->*Destroy)(handle_), "destroy an object");
  }

  [[nodiscard]] Handle get() const noexcept { return handle_; }
  /// The device of a handle that is not empty.
  [[nodiscard]] DeviceApi& api() const noexcept { return *api_; }
  /// Hands the object to the caller.
  [[nodiscard]] Handle release() noexcept { return std::exchange(handle_, Handle::none); }

 private:
  std::shared_ptr<DeviceApi> api_;
  Handle handle_ = Handle::none;
};

using UniqueStream = UniqueHandle<StreamHandle, &DeviceApi::destroy_stream>;
using UniqueEvent = UniqueHandle<EventHandle, &DeviceApi::destroy_event>;
using UniqueGraph = UniqueHandle<GraphHandle, &DeviceApi::destroy_graph>;
using UniqueExecutable = UniqueHandle<ExecutableHandle, &DeviceApi::destroy_executable>;
using UniqueModule = UniqueHandle<ModuleHandle, &DeviceApi::unload>;

[[nodiscard]] inline UniqueStream create_stream(const std::shared_ptr<DeviceApi>& api) {
  StreamHandle stream{};
  check(api->create_stream(stream), "create a stream");
  return {api, stream};
}

[[nodiscard]] inline UniqueEvent create_event(const std::shared_ptr<DeviceApi>& api) {
  EventHandle event{};
  check(api->create_event(event), "create an event");
  return {api, event};
}

[[nodiscard]] inline UniqueGraph create_graph(const std::shared_ptr<DeviceApi>& api) {
  GraphHandle graph{};
  check(api->create_graph(graph), "create a graph");
  return {api, graph};
}

[[nodiscard]] inline UniqueExecutable instantiate(const std::shared_ptr<DeviceApi>& api, GraphHandle graph) {
  ExecutableHandle executable{};
  check(api->instantiate(graph, executable), "instantiate a graph");
  return {api, executable};
}

}  // namespace weft
