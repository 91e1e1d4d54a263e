// The verbs of CudaDevice for calls that enqueue work on a stream.

#include "device/cuda/cuda_device_impl.h"
#include "device/cuda/graph_contents.h"
#include "device/cuda/native_handle.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

namespace weft::cuda {
namespace {

constexpr DeviceStatus kNothing{StatusCode::invalid, 0, "it enqueues nothing on its stream"};
constexpr DeviceStatus kSpoilt{StatusCode::not_ready, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
                               "it does what no capture allows, or another thread synchronized the device each time"};
constexpr DeviceStatus kEnded{StatusCode::invalid, 0, "it ends the capture itself"};

/// Why a node of this type cannot be part of a slot's graph, which runs again and again on the slot's memory.
std::optional<DeviceStatus> refusal_of(CUgraphNodeType type) {
  const auto refused = [](const char* detail) { return DeviceStatus{StatusCode::invalid, 0, detail}; };
  switch (type) {
    case CU_GRAPH_NODE_TYPE_KERNEL:
    case CU_GRAPH_NODE_TYPE_MEMCPY:
    case CU_GRAPH_NODE_TYPE_MEMSET:
    case CU_GRAPH_NODE_TYPE_HOST:
    case CU_GRAPH_NODE_TYPE_GRAPH:
    case CU_GRAPH_NODE_TYPE_EMPTY:
      return {};
    case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
    case CU_GRAPH_NODE_TYPE_MEM_FREE:
      return refused("it allocates or frees memory in the capture; its workspace is for that");
    case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
    case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
      return refused("it records or waits for an event outside the capture");
    default:
      return refused("it enqueues something else than kernels, copies, fills and host functions");
  }
}

/// Nodes that others depend on, with what kind of dependency.
struct Predecessors {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> data;

  /// A node that is there already, as by way of an empty child, becomes one that is waited for in full.
  void add(CUgraphNode node, const CUgraphEdgeData& kind) {
    const auto found = std::ranges::find(nodes, node);
    if (found != nodes.end()) {
      data[static_cast<std::size_t>(found - nodes.begin())] = {};
      return;
    }
    nodes.push_back(node);
    data.push_back(kind);
  }
  void add(const Predecessors& others) {
    for (std::size_t i = 0; i < others.nodes.size(); ++i) add(others.nodes[i], others.data[i]);
  }
};

/// Copies captured nodes into another graph, those of child graphs in the place of the child.
class NodeCopier {
 public:
  NodeCopier(PrimaryContext& context, CUgraph target) : context_(context), target_(target) {}

  /// Copies `graph` behind `before`; `last` gets the copies that nothing in it depends on.
  DeviceStatus copy(CUgraph graph, const Predecessors& before, Predecessors& last) {
    GraphContents source;
    if (const DeviceStatus status = read(context_, graph, source); !status.ok()) return status;
    std::unordered_map<CUgraphNode, std::vector<std::size_t>> into;  // Edges by their end.
    std::unordered_map<CUgraphNode, std::vector<std::size_t>> out;
    for (std::size_t i = 0; i < source.to.size(); ++i) {
      into[source.to[i]].push_back(i);
      out[source.from[i]].push_back(i);
    }
    std::unordered_map<CUgraphNode, std::size_t> missing;
    std::vector<CUgraphNode> ready;
    for (const CUgraphNode node : source.nodes) {
      missing[node] = into[node].size();
      if (into[node].empty()) ready.push_back(node);
    }
    std::unordered_map<CUgraphNode, Predecessors> copies;
    for (std::size_t next = 0; next < ready.size(); ++next) {
      const CUgraphNode node = ready[next];
      Predecessors dependencies;
      if (into[node].empty()) dependencies.add(before);
      for (const std::size_t edge : into[node]) add_edges(copies[source.from[edge]], source.data[edge], dependencies);
      if (const DeviceStatus status = copy(node, dependencies, copies[node]); !status.ok()) return status;
      if (out[node].empty()) last.add(copies[node]);
      for (const std::size_t edge : out[node]) {
        if (--missing[source.to[edge]] == 0) ready.push_back(source.to[edge]);
      }
    }
    if (source.nodes.empty()) last.add(before);  // A child without nodes.
    return {};
  }

 private:
  // A child graph's end is full, whatever its last node is.
  static void add_edges(const Predecessors& from, const CUgraphEdgeData& kind, Predecessors& dependencies) {
    for (const CUgraphNode node : from.nodes) dependencies.add(node, from.nodes.size() == 1 ? kind : CUgraphEdgeData{});
  }

  DeviceStatus copy(CUgraphNode node, const Predecessors& dependencies, Predecessors& copies) {
    const Driver& driver = context_.driver();
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (const DeviceStatus status = context_.call(driver.GraphNodeGetType, node, &type); !status.ok()) return status;
    if (const auto refusal = refusal_of(type)) return *refusal;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      const DeviceStatus status = context_.call(driver.GraphChildGraphNodeGetGraph, node, &child);
      return status.ok() ? copy(child, dependencies, copies) : status;
    }
    CUgraphNodeParams params{};
    params.type = type;
    if (const DeviceStatus status = describe(node, params); !status.ok()) return status;
    CUgraphNode added = nullptr;
    DeviceStatus status = context_.call(driver.GraphAddNode, &added, target_, dependencies.nodes.data(),
                                        dependencies.data.data(), dependencies.nodes.size(), &params);
    // Clusters, cooperation and what else a launch has beside its parameters.
    if (status.ok() && type == CU_GRAPH_NODE_TYPE_KERNEL)
      status = context_.call(driver.GraphKernelNodeCopyAttributes, added, node);
    if (status.ok()) copies.add(added, {});
    return status;
  }

  /// The node's parameters as the driver takes them; they point into the node.
  DeviceStatus describe(CUgraphNode node, CUgraphNodeParams& params) {
    const Driver& driver = context_.driver();
    switch (params.type) {
      case CU_GRAPH_NODE_TYPE_KERNEL: {
        CUDA_KERNEL_NODE_PARAMS_v2 found{};
        const DeviceStatus status = context_.call(driver.GraphKernelNodeGetParams, node, &found);
        CUDA_KERNEL_NODE_PARAMS_v3& kernel = params.kernel;
        kernel.func = found.func;
        kernel.kern = found.kern;
        kernel.ctx = found.ctx;
        kernel.gridDimX = found.gridDimX;
        kernel.gridDimY = found.gridDimY;
        kernel.gridDimZ = found.gridDimZ;
        kernel.blockDimX = found.blockDimX;
        kernel.blockDimY = found.blockDimY;
        kernel.blockDimZ = found.blockDimZ;
        kernel.sharedMemBytes = found.sharedMemBytes;
        kernel.kernelParams = found.kernelParams;
        kernel.extra = found.extra;
        return status;
      }
      case CU_GRAPH_NODE_TYPE_MEMSET: {
        CUDA_MEMSET_NODE_PARAMS_v1 found{};
        const DeviceStatus status = context_.call(driver.GraphMemsetNodeGetParams, node, &found);
        params.memset.dst = found.dst;
        params.memset.pitch = found.pitch;
        params.memset.value = found.value;
        params.memset.elementSize = found.elementSize;
        params.memset.width = found.width;
        params.memset.height = found.height;
        params.memset.ctx = context_.native();
        return status;
      }
      case CU_GRAPH_NODE_TYPE_MEMCPY:
        params.memcpy.copyCtx = context_.native();
        return context_.call(driver.GraphMemcpyNodeGetParams, node, &params.memcpy.copyParams);
      case CU_GRAPH_NODE_TYPE_HOST: {
        CUDA_HOST_NODE_PARAMS_v1 found{};
        const DeviceStatus status = context_.call(driver.GraphHostNodeGetParams, node, &found);
        params.host.fn = found.fn;
        params.host.userData = found.userData;
        return status;
      }
      default:
        return {};
    }
  }

  PrimaryContext& context_;
  CUgraph target_;
};

/// Puts a thread into the capture mode of whoever captures for itself alone, and back.
class ThreadLocalMode {
 public:
  explicit ThreadLocalMode(const Driver& driver) noexcept : driver_(driver) { exchange(); }
  ThreadLocalMode(const ThreadLocalMode&) = delete;
  ThreadLocalMode& operator=(const ThreadLocalMode&) = delete;
  ~ThreadLocalMode() { exchange(); }

 private:
  void exchange() noexcept { static_cast<void>(driver_.ThreadExchangeStreamCaptureMode.function(&mode_)); }

  const Driver& driver_;
  CUstreamCaptureMode mode_ = CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
};

}  // namespace

DeviceStatus CudaDevice::capture(const CaptureRequest& request, StreamHandle stream, GraphHandle& graph) noexcept {
  return guarded([&]() -> DeviceStatus {
    if (context_.lost()) return health();
    const DriverScope scope = context_.enter();
    if (request.load) request.load();
    const auto native_stream = native<CUstream>(stream);
    if (const DeviceStatus status =
            context_.call(driver().StreamBeginCapture, native_stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
        !status.ok()) {
      return status;
    }
    {
      // The thread's mode is relaxed in the scope, which would let the call allocate and synchronize.
      const ThreadLocalMode mode(driver());
      request.enqueue(stream);
    }
    CUstreamCaptureStatus state = CU_STREAM_CAPTURE_STATUS_NONE;
    if (const DeviceStatus status = context_.call(driver().StreamIsCapturing, native_stream, &state); !status.ok())
      return status;
    if (state == CU_STREAM_CAPTURE_STATUS_NONE) return kEnded;
    CUgraph captured = nullptr;
    DeviceStatus status = context_.call(driver().StreamEndCapture, native_stream, &captured);
    if (status.native == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED) return kSpoilt;
    if (!status.ok()) return status;  // There is no graph then.
    status = check_captured(captured);
    if (!status.ok()) {
      static_cast<void>(context_.call(driver().GraphDestroy, captured));
      return status;
    }
    graph = to_handle<GraphHandle>(captured);
    return status;
  });
}

DeviceStatus CudaDevice::check_captured(CUgraph captured) {
  bool has_work = false;
  const DeviceStatus status = check_nodes(captured, has_work);
  return !status.ok() || has_work ? status : kNothing;
}

DeviceStatus CudaDevice::check_nodes(CUgraph graph, bool& has_work) {
  GraphContents found;
  if (const DeviceStatus status = read(context_, graph, found); !status.ok()) return status;
  for (const CUgraphNode node : found.nodes) {
    CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
    if (const DeviceStatus status = context_.call(driver().GraphNodeGetType, node, &type); !status.ok()) return status;
    if (const auto refusal = refusal_of(type)) return *refusal;
    if (type == CU_GRAPH_NODE_TYPE_GRAPH) {
      CUgraph child = nullptr;
      DeviceStatus status = context_.call(driver().GraphChildGraphNodeGetGraph, node, &child);
      if (status.ok()) status = check_nodes(child, has_work);
      if (!status.ok()) return status;
    } else if (type != CU_GRAPH_NODE_TYPE_EMPTY) {
      has_work = true;
    }
  }
  return {};
}

DeviceStatus CudaDevice::add_captured(GraphHandle graph, GraphHandle captured, std::span<const Edge> edges,
                                      std::vector<NodeHandle>& last) noexcept {
  return guarded([&]() -> DeviceStatus {
    const DriverScope scope = context_.enter();
    Predecessors before;
    for (const Edge& edge : edges) before.add(native<CUgraphNode>(edge.from), {});
    Predecessors copies;
    const DeviceStatus status =
        NodeCopier(context_, native<CUgraph>(graph)).copy(native<CUgraph>(captured), before, copies);
    if (!status.ok()) return status;
    last.clear();
    for (const CUgraphNode node : copies.nodes) last.push_back(to_handle<NodeHandle>(node));
    return status;
  });
}

}  // namespace weft::cuda
