#pragma once

#include "device/device_api.h"
#include "device/host/host_executor.h"
#include "device/host/host_graph.h"
#include "device/host/host_handles.h"
#include "device/host/host_kernel.h"
#include "device/host/host_memory.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace weft {

/// The host device's published limits: an H200's. Memory is nominal; what is allocated comes from the process.
[[nodiscard]] DeviceLimits host_limits();

/// What an executable of so many nodes takes, as `memory_info` tells it: fixed figures, since what it really takes is
/// the process's.
[[nodiscard]] constexpr std::uint64_t host_graph_bytes(std::size_t nodes) noexcept { return 2048 * nodes; }

struct HostOptions {
  bool shuffled = false;  ///< Ready work runs in an order drawn from `seed`, not in the order of submission.
  std::uint64_t seed = 0;
  DeviceLimits limits = host_limits();
};

/// Objects of a host device that are not destroyed.
struct HostObjects {
  std::size_t allocations = 0;  ///< Those whose free is queued among them.
  std::size_t pinned = 0;
  std::size_t modules = 0;
  std::size_t graphs = 0;
  std::size_t executables = 0;
  std::size_t streams = 0;
  std::size_t events = 0;
  friend bool operator==(const HostObjects&, const HostObjects&) = default;
};

/// A device that computes on the CPU: the other side of the seam.
///
/// `launch` returns at once. One worker thread runs the ready work of all streams and executables together; only edges,
/// stream order and events order it. Device addresses are pointers of the process. Kernels run their host references.
///
/// It refuses at once what a driver refuses (`invalid`), and it checks how the seam is used: a broken rule answers
/// `internal`, or where it shows only later, is latched. Where a GPU would fault the device is lost. Thread-safe, also
/// for graphs.
class HostDevice final : public DeviceApi {
 public:
  /// Use make_host_device, which also watches the process.
  explicit HostDevice(HostOptions options);
  /// Runs what is queued, then frees everything.
  ~HostDevice() override;

  // --- For tests
  // ---------------------------------------------------------------------------------------------------------
  /// The worker takes no more work; returns when it runs none.
  void hold() { executor_.hold(); }
  /// While held: runs up to `count` operations (nodes, fills, copies, frees) one after the other. Returns how many ran.
  std::size_t step(std::size_t count = 1) { return executor_.step(count); }
  void release() { executor_.release(); }
  /// Releases and waits until nothing is queued.
  void drain() { executor_.drain(); }
  /// A sticky device error: what is queued is dropped, waiters wake, every later verb answers device_lost.
  void lose();
  /// Rules of the seam that were broken, in the order of their discovery.
  [[nodiscard]] std::vector<std::string> violations() const;
  [[nodiscard]] HostObjects objects() const;

  // --- DeviceApi
  // ---------------------------------------------------------------------------------------------------------
  [[nodiscard]] const DeviceLimits& limits() const noexcept override { return limits_; }
  DeviceStatus health() const noexcept override;
  DeviceStatus memory_info(MemoryInfo& info) noexcept override;
  DeviceStatus describe_address(DeviceAddress address, AddressInfo& info) noexcept override;

  DeviceStatus allocate(StreamHandle stream, std::uint64_t bytes, DeviceAddress& address) noexcept override;
  DeviceStatus free(StreamHandle stream, DeviceAddress address) noexcept override;
  DeviceStatus trim(std::uint64_t keep_bytes) noexcept override;
  DeviceStatus allocate_pinned(std::uint64_t bytes, PinnedMemory& memory) noexcept override;
  DeviceStatus free_pinned(std::byte* host) noexcept override;

  DeviceStatus fill(StreamHandle stream, const FillNode& fill) noexcept override;
  DeviceStatus copy(StreamHandle stream, const CopyNode& copy) noexcept override;

  DeviceStatus load(const CodeImage& image, ModuleHandle& module, std::string* log = nullptr) noexcept override;
  DeviceStatus unload(ModuleHandle module) noexcept override;
  /// Each find makes a kernel of its own: two specs of one symbol may have two references.
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
  /// A run of an executable follows its earlier runs, whatever their stream.
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
  /// Nothing of the host device is captured: any live stream will do.
  DeviceStatus check_foreign_stream(StreamHandle stream) noexcept override;
  DeviceStatus adopt_event(EventHandle foreign, EventHandle& event) noexcept override;

 private:
  struct Stream {
    HostOperationRef last;  ///< What new work of the stream follows.
  };
  struct Event {
    bool recorded = false;
    HostOperationRef last;
  };
  struct Module {
    std::vector<KernelHandle> kernels;  ///< One a find: two specs of a symbol may have two references.
  };
  struct Executable {
    HostGraph graph;
    HostOperationRef last_run;
  };
  using BoundNodeRef = std::shared_ptr<const BoundNode>;

  /// Runs a verb's body under the lock, unless the device is lost; latches `internal`, and turns exceptions into
  /// statuses.
  template <class Body>
  DeviceStatus verb(Body&& body) noexcept;
  DeviceStatus lost() const noexcept;

  // All below: with the lock held.
  void latch(const char* violation);
  void lose_locked();
  void enqueue(Stream& stream, Action action);
  DeviceStatus enqueue_node(StreamHandle stream, const Node& node, bool pageable);
  DeviceStatus check_range(DeviceAddress address, std::uint64_t bytes, bool pageable);
  DeviceStatus check_node(const Node& node, bool pageable, BoundNodeRef& bound);
  DeviceStatus check_launchable(const BoundNode& bound);
  [[nodiscard]] bool is_used(DeviceAddress base, std::uint64_t bytes) const;
  [[nodiscard]] bool would_fault(const BoundNode& bound);

  // On the worker, without the lock.
  void run(const Action& action);
  void run_node(const BoundNode& bound);
  void run_free(DeviceAddress base);

  const DeviceLimits limits_;
  std::atomic<bool> lost_{false};
  mutable std::mutex mutex_;
  std::vector<std::string> violations_;
  HostMemory memory_;
  HostHandles<ModuleHandle, Module> modules_;
  HostHandles<KernelHandle, std::shared_ptr<LoadedHostKernel>> kernels_;
  HostHandles<GraphHandle, HostGraph> graphs_;
  HostHandles<ExecutableHandle, Executable> executables_;
  HostHandles<StreamHandle, Stream> streams_;
  HostHandles<EventHandle, Event> events_;
  std::uint64_t last_node_ = 0;
  HostExecutor executor_;  ///< Last: its worker uses all the rest, and stops first.
};

/// The device's memory and thread are left to the system where its last handle goes while the process exits, or in a
/// child that was forked after a device was opened. What is queued then does not run.
[[nodiscard]] std::shared_ptr<HostDevice> make_host_device(HostOptions options = {});

}  // namespace weft
