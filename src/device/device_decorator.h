#pragma once

#include "device/device_api.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

// What a device that wraps another is made from. Such devices are for tests: they are no part of the library, and one
// that allocates inside a verb, which is noexcept, ends the process where the host has no memory left.

namespace weft {

/// The verbs of DeviceApi that answer a DeviceStatus, but for `health`.
enum class Verb : std::uint8_t {
  memory_info,
  describe_address,
  allocate,
  free,
  trim,
  allocate_pinned,
  free_pinned,
  fill,
  copy,
  load,
  unload,
  find_kernel,
  find_global,
  raise_dynamic_shared,
  max_resident_blocks,
  create_graph,
  add_node,
  set_node,
  read_back,
  destroy_graph,
  capture,
  add_captured,
  instantiate,
  set_executable_node,
  upload,
  launch,
  destroy_executable,
  create_stream,
  query_stream,
  synchronize_stream,
  destroy_stream,
  create_event,
  record_event,
  wait_event,
  synchronize_event,
  destroy_event,
  check_foreign_stream,
  adopt_event,
};
inline constexpr std::size_t kVerbCount = static_cast<std::size_t>(Verb::adopt_event) + 1;

[[nodiscard]] std::string_view to_string(Verb verb) noexcept;

/// Calls through to another device. As thread-safe as that device.
class DeviceDecorator : public DeviceApi {
 public:
  explicit DeviceDecorator(std::shared_ptr<DeviceApi> inner) noexcept : inner_(std::move(inner)) {}

  [[nodiscard]] const DeviceLimits& limits() const noexcept override { return inner_->limits(); }
  DeviceStatus health() const noexcept override { return inner_->health(); }
  DeviceStatus memory_info(MemoryInfo& info) noexcept override;
  DeviceStatus describe_address(DeviceAddress address, AddressInfo& info) noexcept override;

  DeviceStatus allocate(StreamHandle stream, std::uint64_t bytes, DeviceAddress& address) noexcept override;
  DeviceStatus free(StreamHandle stream, DeviceAddress address) noexcept override;
  DeviceStatus trim(std::uint64_t keep_bytes) noexcept override;
  DeviceStatus allocate_pinned(std::uint64_t bytes, PinnedMemory& memory) noexcept override;
  DeviceStatus free_pinned(std::byte* host) noexcept override;

  DeviceStatus fill(StreamHandle stream, const FillNode& node) noexcept override;
  DeviceStatus copy(StreamHandle stream, const CopyNode& node) noexcept override;

  DeviceStatus load(const CodeImage& image, ModuleHandle& module, std::string* log) noexcept override;
  DeviceStatus unload(ModuleHandle module) noexcept override;
  DeviceStatus find_kernel(ModuleHandle module, const KernelSpec& spec, KernelHandle& kernel,
                           CompiledKernel& compiled) noexcept override;
  DeviceStatus find_global(ModuleHandle module, const std::string& name, GlobalVariable& variable) noexcept override;
  DeviceStatus raise_dynamic_shared(KernelHandle kernel, std::uint32_t bytes) noexcept override;
  DeviceStatus max_resident_blocks(const KernelNode& launch, std::uint64_t& blocks) noexcept override;

  DeviceStatus create_graph(GraphHandle& graph) noexcept override;
  DeviceStatus add_node(GraphHandle graph, const Node& node, std::span<const Edge> edges,
                        NodeHandle& handle) noexcept override;
  DeviceStatus set_node(GraphHandle graph, NodeHandle handle, const Node& node) noexcept override;
  DeviceStatus read_back(GraphHandle graph, GraphReadBack& description) noexcept override;
  DeviceStatus destroy_graph(GraphHandle graph) noexcept override;
  DeviceStatus capture(const CaptureRequest& request, StreamHandle stream, GraphHandle& graph) noexcept override;
  DeviceStatus add_captured(GraphHandle graph, GraphHandle captured, std::span<const Edge> edges,
                            std::vector<NodeHandle>& last) noexcept override;
  DeviceStatus instantiate(GraphHandle graph, ExecutableHandle& executable) noexcept override;
  DeviceStatus set_executable_node(ExecutableHandle executable, NodeHandle handle, const Node& node) noexcept override;
  DeviceStatus upload(ExecutableHandle executable, StreamHandle stream) noexcept override;
  DeviceStatus launch(ExecutableHandle executable, StreamHandle stream) noexcept override;
  DeviceStatus destroy_executable(ExecutableHandle executable) noexcept override;

  DeviceStatus create_stream(StreamHandle& stream) noexcept override;
  DeviceStatus query_stream(StreamHandle stream) noexcept override;
  DeviceStatus synchronize_stream(StreamHandle stream) noexcept override;
  DeviceStatus destroy_stream(StreamHandle stream) noexcept override;
  DeviceStatus create_event(EventHandle& event) noexcept override;
  DeviceStatus record_event(EventHandle event, StreamHandle stream) noexcept override;
  DeviceStatus wait_event(StreamHandle stream, EventHandle event) noexcept override;
  DeviceStatus synchronize_event(EventHandle event) noexcept override;
  DeviceStatus destroy_event(EventHandle event) noexcept override;
  DeviceStatus check_foreign_stream(StreamHandle stream) noexcept override;
  DeviceStatus adopt_event(EventHandle foreign, EventHandle& event) noexcept override;

 protected:
  /// Runs before each call; a status that is not ok is the call's answer, and the inner device is not called.
  virtual DeviceStatus before(Verb) noexcept { return {}; }

 private:
  template <class Call>
  DeviceStatus call(Verb verb, const Call& call) noexcept {
    const DeviceStatus answer = before(verb);
    return answer.ok() ? call() : answer;
  }

  std::shared_ptr<DeviceApi> inner_;
};

}  // namespace weft
