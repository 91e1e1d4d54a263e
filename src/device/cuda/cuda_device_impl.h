#pragma once

#include "device/cuda/cuda_code.h"
#include "device/cuda/memory_pool.h"
#include "device/cuda/primary_context.h"

#include <new>

namespace weft::cuda {

/// The seam over the CUDA driver. One file for each group of verbs: cuda_device (the device itself), cuda_memory,
/// cuda_code, cuda_graph, cuda_stream.
class CudaDevice final : public DeviceApi {
 public:
  CudaDevice(const Driver& driver, std::uint32_t ordinal);

  [[nodiscard]] const DeviceLimits& limits() const noexcept override { return limits_; }
  DeviceStatus health() const noexcept override { return context_.health(); }
  DeviceStatus memory_info(MemoryInfo& info) noexcept override;
  DeviceStatus describe_address(DeviceAddress address, AddressInfo& info) noexcept override;

  DeviceStatus allocate(StreamHandle stream, std::uint64_t bytes, DeviceAddress& address) noexcept override;
  DeviceStatus free(StreamHandle stream, DeviceAddress address) noexcept override;
  DeviceStatus trim(std::uint64_t keep_bytes) noexcept override;
  DeviceStatus allocate_pinned(std::uint64_t bytes, PinnedMemory& memory) noexcept override;
  DeviceStatus free_pinned(std::byte* host) noexcept override;
  DeviceStatus fill(StreamHandle stream, const FillNode& fill) noexcept override;
  DeviceStatus copy(StreamHandle stream, const CopyNode& copy) noexcept override;

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

 private:
  [[nodiscard]] const Driver& driver() const noexcept { return context_.driver(); }
  /// Whether a graph takes a memset node on memory of weft's pool. Any failure but the node's refusal is the answer.
  DeviceStatus probe_fill_nodes(bool& accepted) noexcept;
  DeviceStatus try_fill_node(GraphHandle graph, const FillNode& fill, bool& accepted) noexcept;
  /// Whether all that was captured can be part of a slot's graph.
  DeviceStatus check_captured(CUgraph captured);
  DeviceStatus check_nodes(CUgraph graph, bool& has_work);
  DeviceStatus read_node(CUgraphNode node, GraphReadBack::NodeReadBack& description);
  DeviceStatus read_symbol(CUgraphNode node, std::string& symbol);
  /// The default streams are those of the current context.
  [[nodiscard]] DriverScope enter_for(CUstream stream) const noexcept;

  /// Runs a verb that allocates host memory.
  template <class Body>
  static DeviceStatus guarded(Body&& body) noexcept {
    try {
      return body();
    } catch (const std::bad_alloc&) {
      return {StatusCode::out_of_memory, 0, "there is no host memory"};
    }
  }

  PrimaryContext context_;
  DeviceLimits limits_;
  MemoryPool pool_;
  CudaCode code_;
};

}  // namespace weft::cuda
