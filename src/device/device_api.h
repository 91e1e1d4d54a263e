#pragma once

#include <weft/error.h>
#include <weft/kernel.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// The seam. Everything above it is the same for every device; below it stand device/cuda, device/host and, in
// tests, decorators (device/device_decorator). It speaks at the level of graph nodes, with real addresses.

namespace weft {

// Handles are the device's own words (a driver pointer, or a number of the host device). Zero is never a live handle.
enum class StreamHandle : std::uint64_t { none = 0 };
enum class EventHandle : std::uint64_t { none = 0 };
enum class ModuleHandle : std::uint64_t { none = 0 };
enum class KernelHandle : std::uint64_t { none = 0 };
enum class GraphHandle : std::uint64_t { none = 0 };
enum class NodeHandle : std::uint64_t { none = 0 };
enum class ExecutableHandle : std::uint64_t { none = 0 };

/// An address that the device's nodes use.
using DeviceAddress = std::uint64_t;

enum class StatusCode : std::uint8_t {
  ok,
  not_ready,      ///< A query found work unfinished.
  invalid,        ///< The device refused the arguments.
  out_of_memory,  ///< Not sticky.
  unsupported,
  device_lost,  ///< Sticky: every later verb answers the same.
  internal,     ///< Broken use of the seam (the host device's debug layer), or an unknown code.
};

/// What a verb came to. Ignoring one does not compile without a cast.
struct [[nodiscard]] DeviceStatus {
  StatusCode code = StatusCode::ok;
  int native = 0;           ///< The driver's code, 0 on the host device.
  const char* detail = "";  ///< The driver call or the rule that was broken; static storage, never null.

  [[nodiscard]] bool ok() const noexcept { return code == StatusCode::ok; }
};

/// Throws the weft::Error for a status that is not ok; `action` completes "The device cannot <action>".
void check(DeviceStatus status, std::string_view action, std::source_location where = std::source_location::current());

/// Logs the failure of a destructor, which has nobody to tell. A lost device is told of once, and not here.
void log_swallowed(DeviceStatus status, std::string_view action) noexcept;
/// Logs that the device `name` is lost. For the device, when the sticky status latches.
void log_lost(std::string_view name, DeviceStatus status) noexcept;

/// Fixed properties of a device.
struct DeviceLimits {
  std::string name;                      ///< "NVIDIA H200", "host".
  std::uint32_t compute_capability = 0;  ///< 90 for sm_90.
  std::uint32_t driver_version = 0;      ///< 13000 for 13.0; 0 on the host device.
  std::uint32_t multiprocessors = 0;
  std::uint32_t max_threads_per_block = 0;
  Dim3 max_block;
  Dim3 max_grid;
  std::uint32_t default_shared_bytes = 0;  ///< Static and dynamic together, without opting in.
  std::uint32_t max_shared_bytes = 0;      ///< Static and dynamic together, after opting in.
  std::uint32_t max_parameter_bytes = 0;
  std::uint64_t total_memory_bytes = 0;
  bool fill_nodes_on_pool_memory = true;  ///< False where the driver refuses memset nodes on pool memory.
  friend bool operator==(const DeviceLimits&, const DeviceLimits&) = default;
};

struct MemoryInfo {
  std::uint64_t free_bytes = 0;
  std::uint64_t total_bytes = 0;
  std::uint64_t pool_reserved_bytes = 0;  ///< Held by weft's pool, used or not.
  std::uint64_t pool_used_bytes = 0;
};

struct AddressInfo {
  enum class Kind : std::uint8_t { unknown, device, pinned };
  Kind kind = Kind::unknown;
  DeviceAddress base = 0;  ///< Start of the allocation.
  std::uint64_t bytes = 0;
};

/// Pinned host memory, mapped for the device.
struct PinnedMemory {
  std::byte* host = nullptr;
  DeviceAddress device = 0;
};

struct FillNode {
  DeviceAddress destination = 0;
  std::uint64_t bytes = 0;
  std::uint8_t value = 0;
  friend bool operator==(const FillNode&, const FillNode&) = default;
};

/// A copy by the device's copy engines between any two addresses that it knows.
struct CopyNode {
  DeviceAddress destination = 0;
  DeviceAddress source = 0;
  std::uint64_t bytes = 0;
  friend bool operator==(const CopyNode&, const CopyNode&) = default;
};

/// Blocks of a cluster that every GPU with clusters takes.
inline constexpr std::uint32_t kMaxPortableCluster = 8;

struct KernelNode {
  KernelHandle kernel = KernelHandle::none;
  Dim3 grid;
  Dim3 block;
  std::uint32_t dynamic_shared_bytes = 0;
  /// The parameter block: each parameter at its compiled offset.
  std::vector<std::byte> parameters;
  Dim3 cluster = {};
  bool cooperative = false;
  friend bool operator==(const KernelNode&, const KernelNode&) = default;
};

using Node = std::variant<FillNode, CopyNode, KernelNode>;

/// A call that enqueues work on a stream, to be recorded. What its functions throw would end the process.
struct CaptureRequest {
  std::string name;
  std::vector<DeviceAddress> addresses;       ///< What its work uses.
  std::function<void()> load;                 ///< Runs first, outside the capture; may be empty.
  std::function<void(StreamHandle)> enqueue;  ///< The host device calls neither this nor `load`.
  std::function<void()> host;                 ///< What the host device runs instead; may be empty.
};

/// A dependency of a node on an earlier one.
struct Edge {
  NodeHandle from = NodeHandle::none;
  bool programmatic = false;
  friend bool operator==(const Edge&, const Edge&) = default;
};

/// The layout that the compiler gave a kernel.
struct CompiledKernel {
  struct ParameterLayout {
    /// What the code says of the parameter; most compilers do not tell.
    enum class Kind : std::uint8_t { unknown, value, pointer };
    std::uint32_t offset = 0;
    std::uint32_t size = 0;
    Kind kind = Kind::unknown;
    friend bool operator==(const ParameterLayout&, const ParameterLayout&) = default;
  };
  std::vector<ParameterLayout> parameters;
  std::uint32_t max_threads_per_block = 0;
  std::uint32_t static_shared_bytes = 0;
  std::uint32_t binary_version =
      0;  ///< 90 for sm_90 code, or PTX of compute_90; the host device gives its compute capability.
  bool needs_cluster = false;        ///< The code runs in clusters alone.
  std::optional<Dim3> cluster = {};  ///< The only cluster that the code is compiled for.
  /// Bytes of a parameter block: up to the end of the last parameter.
  [[nodiscard]] std::uint64_t parameter_bytes() const noexcept;
  friend bool operator==(const CompiledKernel&, const CompiledKernel&) = default;
};

/// A variable of loaded code.
struct GlobalVariable {
  DeviceAddress address = 0;  ///< 0 on the host device, which looks at no code.
  std::uint64_t bytes = 0;
  friend bool operator==(const GlobalVariable&, const GlobalVariable&) = default;
};

/// A graph as the device tells it back.
struct GraphReadBack {
  struct NodeReadBack {
    enum class Kind : std::uint8_t { fill, copy, kernel, other };
    NodeHandle handle = NodeHandle::none;
    Kind kind = Kind::other;
    std::string symbol;  ///< Kernels: the function's symbol.
  };
  struct EdgeReadBack {
    NodeHandle from = NodeHandle::none;
    NodeHandle to = NodeHandle::none;
    bool programmatic = false;
  };
  std::vector<NodeReadBack> nodes;
  std::vector<EdgeReadBack> edges;
};

/// One open device.
///
/// Thread-safe but for graphs: one graph is built, set or instantiated by one thread at a time, and one executable is
/// launched by one thread at a time. Every verb is noexcept and leaves the caller's current CUDA context and
/// stream-capture mode as they were. A verb that does not answer `ok` has done nothing and leaves its output untouched.
/// Once `health` is device_lost every verb answers the same, at once, and destruction calls no driver.
class DeviceApi {
 public:
  DeviceApi() = default;
  DeviceApi(const DeviceApi&) = delete;
  DeviceApi& operator=(const DeviceApi&) = delete;
  virtual ~DeviceApi() = default;

  // --- The device itself
  // -------------------------------------------------------------------------------------------------
  [[nodiscard]] virtual const DeviceLimits& limits() const noexcept = 0;
  /// ok, or device_lost once any verb has met a sticky error, the process has begun to exit, or it is the child of a
  /// process that had opened a device (see device/process_state.h). Asks no driver and takes no lock.
  virtual DeviceStatus health() const noexcept = 0;
  virtual DeviceStatus memory_info(MemoryInfo& info) noexcept = 0;
  virtual DeviceStatus describe_address(DeviceAddress address, AddressInfo& info) noexcept = 0;

  // --- Memory
  // ------------------------------------------------------------------------------------------------------------
  /// Memory from weft's own pool, usable by work that follows on `stream`. Aligned to 256 at least. Contents are
  /// undefined.
  virtual DeviceStatus allocate(StreamHandle stream, std::uint64_t bytes, DeviceAddress& address) noexcept = 0;
  /// Gives memory back once the work now queued on `stream` is done. Does not wait.
  virtual DeviceStatus free(StreamHandle stream, DeviceAddress address) noexcept = 0;
  /// Returns idle pool memory to the driver, down to `keep_bytes`.
  virtual DeviceStatus trim(std::uint64_t keep_bytes) noexcept = 0;
  /// Pinned, mapped, portable host memory; zeroed; aligned to 256 at least.
  virtual DeviceStatus allocate_pinned(std::uint64_t bytes, PinnedMemory& memory) noexcept = 0;
  /// The caller knows that no queued work uses it.
  virtual DeviceStatus free_pinned(std::byte* host) noexcept = 0;

  // --- Immediate work, for preparation
  // -----------------------------------------------------------------------------------
  virtual DeviceStatus fill(StreamHandle stream, const FillNode& fill) noexcept = 0;
  /// The source or destination may be pageable host memory; it must live until the stream is drained.
  virtual DeviceStatus copy(StreamHandle stream, const CopyNode& copy) noexcept = 0;

  // --- Code
  // --------------------------------------------------------------------------------------------------------------
  /// `log`, where it is given, becomes what the driver's compiler has to say of PTX that it refuses.
  virtual DeviceStatus load(const CodeImage& image, ModuleHandle& module, std::string* log = nullptr) noexcept = 0;
  virtual DeviceStatus unload(ModuleHandle module) noexcept = 0;
  /// Finds `spec.symbol`, or the kernel of the program that `spec.image` names, and tells its compiled layout. The host
  /// device takes both from `spec.host`, or from `spec.parameters` where there is none.
  virtual DeviceStatus find_kernel(ModuleHandle module, const KernelSpec& spec, KernelHandle& kernel,
                                   CompiledKernel& compiled) noexcept = 0;
  /// Finds a variable of a module that has code of its own. `invalid` when there is none of this name.
  virtual DeviceStatus find_global(ModuleHandle module, const std::string& name, GlobalVariable& variable) noexcept = 0;
  /// Lets launches of the kernel use this much dynamic shared memory. Raises only: the limit is shared by all its
  /// users.
  virtual DeviceStatus raise_dynamic_shared(KernelHandle kernel, std::uint32_t bytes) noexcept = 0;
  /// How many blocks of such a launch the whole device holds at once, in whole clusters; 0 when it cannot hold one.
  virtual DeviceStatus max_resident_blocks(const KernelNode& launch, std::uint64_t& blocks) noexcept = 0;

  // --- Graphs
  // ------------------------------------------------------------------------------------------------------------
  virtual DeviceStatus create_graph(GraphHandle& graph) noexcept = 0;
  virtual DeviceStatus add_node(GraphHandle graph, const Node& node, std::span<const Edge> edges,
                                NodeHandle& handle) noexcept = 0;
  /// Replaces the parameters of a node by those of a node of the same kind. A kernel's cluster and cooperation stay.
  virtual DeviceStatus set_node(GraphHandle graph, NodeHandle handle, const Node& node) noexcept = 0;
  virtual DeviceStatus read_back(GraphHandle graph, GraphReadBack& description) noexcept = 0;
  virtual DeviceStatus destroy_graph(GraphHandle graph) noexcept = 0;
  /// Records what the call enqueues as a graph of at least one node, with the device's context current and a capture of
  /// this thread alone on `stream`, on which nobody else works. `invalid` for a call that enqueues nothing, or
  /// something that no graph can have or that was not joined to the stream; `not_ready` where the capture was spoilt,
  /// by the call or by another thread that synchronized the device meanwhile, so that it may go well another time. The
  /// stream is as it was then. On the host device the graph has one node that runs `host`.
  virtual DeviceStatus capture(const CaptureRequest& request, StreamHandle stream, GraphHandle& graph) noexcept = 0;
  /// Adds copies of all nodes of a captured graph: those that depend on nothing there get `edges`, and `last` becomes
  /// the ones that nothing there depends on. The captured graph must live as long as executables of `graph`, since
  /// libraries tie what they need to it. After a failure the graph is only good for destruction.
  virtual DeviceStatus add_captured(GraphHandle graph, GraphHandle captured, std::span<const Edge> edges,
                                    std::vector<NodeHandle>& last) noexcept = 0;
  /// The executable does not need the graph afterwards.
  virtual DeviceStatus instantiate(GraphHandle graph, ExecutableHandle& executable) noexcept = 0;
  /// Like set_node, in an executable that is not running; `handle` is the node's handle in the graph it was made from.
  virtual DeviceStatus set_executable_node(ExecutableHandle executable, NodeHandle handle,
                                           const Node& node) noexcept = 0;
  virtual DeviceStatus upload(ExecutableHandle executable, StreamHandle stream) noexcept = 0;
  /// The hot path. Returns before the work is done.
  virtual DeviceStatus launch(ExecutableHandle executable, StreamHandle stream) noexcept = 0;
  /// Allowed while it runs; the run finishes.
  virtual DeviceStatus destroy_executable(ExecutableHandle executable) noexcept = 0;

  // --- Streams and events
  // ------------------------------------------------------------------------------------------------
  virtual DeviceStatus create_stream(StreamHandle& stream) noexcept = 0;
  /// ok when drained, not_ready while work is queued.
  virtual DeviceStatus query_stream(StreamHandle stream) noexcept = 0;
  virtual DeviceStatus synchronize_stream(StreamHandle stream) noexcept = 0;
  /// Allowed with work queued; the work finishes.
  virtual DeviceStatus destroy_stream(StreamHandle stream) noexcept = 0;
  virtual DeviceStatus create_event(EventHandle& event) noexcept = 0;
  virtual DeviceStatus record_event(EventHandle event, StreamHandle stream) noexcept = 0;
  /// Work queued on `stream` from now on follows the event's last record. An event never recorded is refused.
  virtual DeviceStatus wait_event(StreamHandle stream, EventHandle event) noexcept = 0;
  virtual DeviceStatus synchronize_event(EventHandle event) noexcept = 0;
  virtual DeviceStatus destroy_event(EventHandle event) noexcept = 0;

  // --- Streams and events of others
  // --------------------------------------------------------------------------------------
  // Their handles are the driver's own words (a CUstream, a CUevent). A driver's default streams are among them.
  /// Whether events may be recorded on a stream, and it may be made to wait: `invalid` while it is being captured. The
  /// capture stays as it is.
  virtual DeviceStatus check_foreign_stream(StreamHandle stream) noexcept = 0;
  /// An event that stands for what `foreign` was last recorded behind, or for nothing where it never was. Destroying it
  /// leaves the other as it is, which must live until then. `invalid` for an event that was recorded in a capture,
  /// which goes on.
  virtual DeviceStatus adopt_event(EventHandle foreign, EventHandle& event) noexcept = 0;
};

}  // namespace weft
