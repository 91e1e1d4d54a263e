#pragma once

#include "device/device_decorator.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace weft {

/// Writes down the verbs of preparation and submission, one line a call, in a form that does not depend on the device.
///
/// Addresses stand as (allocation, offset) and handles as ordinals in the order of their creation; nodes are counted by
/// graph. Kernel parameters that are bindings, and pointers inside a struct, stand as addresses, other parameters in
/// hexadecimal. A failed call ends in its status. Left out: queries, waits for completion, memory info, attributes,
/// read-back and trim. Lines of several threads stand in the order in which their calls returned.
///
/// A test device: a verb that finds no host memory for its line ends the process.
class TracingDevice final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;

  [[nodiscard]] std::vector<std::string> lines() const;

  DeviceStatus allocate(StreamHandle stream, std::uint64_t bytes, DeviceAddress& address) noexcept override;
  DeviceStatus free(StreamHandle stream, DeviceAddress address) noexcept override;
  DeviceStatus allocate_pinned(std::uint64_t bytes, PinnedMemory& memory) noexcept override;
  DeviceStatus free_pinned(std::byte* host) noexcept override;
  DeviceStatus fill(StreamHandle stream, const FillNode& node) noexcept override;
  DeviceStatus copy(StreamHandle stream, const CopyNode& node) noexcept override;
  DeviceStatus load(const CodeImage& image, ModuleHandle& module, std::string* log) noexcept override;
  DeviceStatus unload(ModuleHandle module) noexcept override;
  DeviceStatus find_kernel(ModuleHandle module, const KernelSpec& spec, KernelHandle& kernel,
                           CompiledKernel& compiled) noexcept override;
  DeviceStatus create_graph(GraphHandle& graph) noexcept override;
  DeviceStatus add_node(GraphHandle graph, const Node& node, std::span<const Edge> edges,
                        NodeHandle& handle) noexcept override;
  DeviceStatus set_node(GraphHandle graph, NodeHandle handle, const Node& node) noexcept override;
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
  DeviceStatus destroy_stream(StreamHandle stream) noexcept override;
  DeviceStatus create_event(EventHandle& event) noexcept override;
  DeviceStatus record_event(EventHandle event, StreamHandle stream) noexcept override;
  DeviceStatus wait_event(StreamHandle stream, EventHandle event) noexcept override;
  DeviceStatus destroy_event(EventHandle event) noexcept override;
  DeviceStatus adopt_event(EventHandle foreign, EventHandle& event) noexcept override;

 private:
  /// Ordinals of one kind of handle. A device may use a value again; it is then a new object.
  template <class Handle>
  class Ordinals {
   public:
    std::size_t add(Handle handle) { return ordinals_[handle] = ++last_; }
    /// 0 when it was never created here.
    [[nodiscard]] std::size_t of(Handle handle) const {
      const auto found = ordinals_.find(handle);
      return found == ordinals_.end() ? 0 : found->second;
    }

   private:
    std::size_t last_ = 0;
    std::unordered_map<Handle, std::size_t> ordinals_;
  };

  struct Memory {
    std::string name;
    std::uint64_t bytes = 0;
  };
  struct KernelNames {
    std::string symbol;
    std::vector<Parameter> parameters;
    CompiledKernel compiled;
  };
  using NodeOrdinals = Ordinals<NodeHandle>;

  /// The nodes that edges come from, as the end of a line.
  [[nodiscard]] static std::string describe(const NodeOrdinals& nodes, std::span<const Edge> edges);
  /// Writes down a call on two objects, which it leaves as they are.
  template <class First, class Second>
  DeviceStatus traced_pair(Verb verb, First first, Second second, DeviceStatus status);
  /// Destroys and writes it down in one go: the device may use the handle's value again at once.
  template <class Handle, class Destroy>
  DeviceStatus traced_destroy(Verb verb, Handle handle, Destroy destroy);

  // With the lock held.
  [[nodiscard]] const Memory* find_memory(DeviceAddress address, DeviceAddress& base) const;
  [[nodiscard]] std::string describe(DeviceAddress address) const;
  [[nodiscard]] std::string describe(const Node& node) const;
  [[nodiscard]] std::string describe_range(const FillNode& fill) const;
  [[nodiscard]] std::string describe_range(const CopyNode& copy) const;
  [[nodiscard]] std::string describe_launch(const KernelNode& node) const;
  [[nodiscard]] std::string describe_parameter(const KernelNode& node, const KernelNames& kernel,
                                               std::size_t index) const;
  [[nodiscard]] std::string name(StreamHandle stream) const;
  [[nodiscard]] std::string name(EventHandle event) const;
  [[nodiscard]] std::string name(ModuleHandle module) const;
  [[nodiscard]] std::string name(GraphHandle graph) const;
  [[nodiscard]] std::string name(ExecutableHandle executable) const;
  void write(Verb verb, std::string arguments, DeviceStatus status, std::string result = {});

  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
  std::map<DeviceAddress, Memory> memory_;
  std::size_t allocations_ = 0;
  std::size_t pinned_ = 0;
  Ordinals<StreamHandle> streams_;
  Ordinals<EventHandle> events_;
  Ordinals<ModuleHandle> modules_;
  Ordinals<GraphHandle> graphs_;
  Ordinals<ExecutableHandle> executables_;
  std::unordered_map<KernelHandle, KernelNames> kernels_;
  std::unordered_map<GraphHandle, NodeOrdinals> graph_nodes_;
  std::unordered_map<ExecutableHandle, NodeOrdinals> executable_nodes_;
};

}  // namespace weft
