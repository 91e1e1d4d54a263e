#include "device/cuda/cuda_device_impl.h"
#include "device/cuda/graph_contents.h"
#include "device/cuda/native_handle.h"
#include "device/cuda/node_params.h"

#include <algorithm>

namespace weft::cuda {
namespace {

/// A node's dependencies as the driver takes them.
struct Dependencies {
  explicit Dependencies(std::span<const Edge> edges) {
    nodes.reserve(edges.size());
    for (const Edge& edge : edges) nodes.push_back(native<CUgraphNode>(edge.from));
    if (std::ranges::none_of(edges, &Edge::programmatic)) return;
    data.resize(edges.size());
    for (std::size_t i = 0; i < edges.size(); ++i) {
      if (!edges[i].programmatic) continue;
      data[i].from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC;
      data[i].type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
    }
  }

  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphEdgeData> data;  ///< Empty where all are full dependencies.
};

GraphReadBack::NodeReadBack::Kind kind_of(CUgraphNodeType type) {
  using enum GraphReadBack::NodeReadBack::Kind;
  switch (type) {
    case CU_GRAPH_NODE_TYPE_MEMSET:
      return fill;
    case CU_GRAPH_NODE_TYPE_MEMCPY:
      return copy;
    case CU_GRAPH_NODE_TYPE_KERNEL:
      return kernel;
    default:
      return other;
  }
}

}  // namespace

DeviceStatus CudaDevice::create_graph(GraphHandle& graph) noexcept {
  CUgraph created = nullptr;
  const DriverScope scope = context_.enter();
  const DeviceStatus status = context_.call(driver().GraphCreate, &created, 0u);
  if (status.ok()) graph = to_handle<GraphHandle>(created);
  return status;
}

DeviceStatus CudaDevice::add_node(GraphHandle graph, const Node& node, std::span<const Edge> edges,
                                  NodeHandle& handle) noexcept {
  return guarded([&]() -> DeviceStatus {
    NodeParams params(node, context_.native());
    if (!params.status().ok()) return params.status();
    const Dependencies dependencies(edges);
    CUgraphNode added = nullptr;
    const DriverScope scope = context_.enter();
    const DeviceStatus status = context_.call(
        driver().GraphAddNode, &added, native<CUgraph>(graph), dependencies.nodes.data(),
        dependencies.data.empty() ? nullptr : dependencies.data.data(), dependencies.nodes.size(), params.native());
    if (!status.ok()) return status;
    if (const DeviceStatus set = set_attributes(context_, added, node); !set.ok()) {
      static_cast<void>(context_.call(driver().GraphDestroyNode, added));
      return set;
    }
    handle = to_handle<NodeHandle>(added);
    return {};
  });
}

DeviceStatus CudaDevice::set_node(GraphHandle, NodeHandle handle, const Node& node) noexcept {
  return guarded([&]() -> DeviceStatus {
    NodeParams params(node, context_.native());
    if (!params.status().ok()) return params.status();
    const DriverScope scope = context_.enter();
    const DeviceStatus status =
        context_.call(driver().GraphNodeSetParams, native<CUgraphNode>(handle), params.native());
    return status.ok() ? set_attributes(context_, native<CUgraphNode>(handle), node) : status;
  });
}

DeviceStatus CudaDevice::set_executable_node(ExecutableHandle executable, NodeHandle handle,
                                             const Node& node) noexcept {
  return guarded([&]() -> DeviceStatus {
    NodeParams params(node, context_.native());
    if (!params.status().ok()) return params.status();
    const DriverScope scope = context_.enter();
    return context_.call(driver().GraphExecNodeSetParams, native<CUgraphExec>(executable), native<CUgraphNode>(handle),
                         params.native());
  });
}

DeviceStatus CudaDevice::read_back(GraphHandle graph, GraphReadBack& description) noexcept {
  return guarded([&]() -> DeviceStatus {
    const DriverScope scope = context_.enter();
    GraphContents contents;
    if (const DeviceStatus status = read(context_, native<CUgraph>(graph), contents); !status.ok()) return status;
    GraphReadBack found;
    for (const CUgraphNode node : contents.nodes) {
      if (const DeviceStatus status = read_node(node, found.nodes.emplace_back()); !status.ok()) return status;
    }
    for (std::size_t i = 0; i < contents.data.size(); ++i) {
      found.edges.push_back({to_handle<NodeHandle>(contents.from[i]), to_handle<NodeHandle>(contents.to[i]),
                             contents.data[i].type == CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC});
    }
    description = std::move(found);
    return {};
  });
}

DeviceStatus CudaDevice::read_node(CUgraphNode node, GraphReadBack::NodeReadBack& description) {
  CUgraphNodeType type = CU_GRAPH_NODE_TYPE_EMPTY;
  if (const DeviceStatus status = context_.call(driver().GraphNodeGetType, node, &type); !status.ok()) return status;
  description.handle = to_handle<NodeHandle>(node);
  description.kind = kind_of(type);
  return type == CU_GRAPH_NODE_TYPE_KERNEL ? read_symbol(node, description.symbol) : DeviceStatus{};
}

DeviceStatus CudaDevice::read_symbol(CUgraphNode node, std::string& symbol) {
  CUDA_KERNEL_NODE_PARAMS params{};
  if (const DeviceStatus status = context_.call(driver().GraphKernelNodeGetParams, node, &params); !status.ok()) {
    return status;
  }
  // A node tells the form in which its kernel was given: a kernel, or a function in captured graphs of others.
  const char* name = nullptr;
  const DeviceStatus status = params.func != nullptr ? context_.call(driver().FuncGetName, &name, params.func)
                                                     : context_.call(driver().KernelGetName, &name, params.kern);
  if (status.ok()) symbol = name;
  return status;
}

DeviceStatus CudaDevice::destroy_graph(GraphHandle graph) noexcept {
  const DriverScope scope = context_.enter();
  return context_.call(driver().GraphDestroy, native<CUgraph>(graph));
}

DeviceStatus CudaDevice::instantiate(GraphHandle graph, ExecutableHandle& executable) noexcept {
  CUgraphExec created = nullptr;
  const DriverScope scope = context_.enter();
  const DeviceStatus status = context_.call(driver().GraphInstantiateWithFlags, &created, native<CUgraph>(graph), 0ull);
  if (status.ok()) executable = to_handle<ExecutableHandle>(created);
  return status;
}

DeviceStatus CudaDevice::upload(ExecutableHandle executable, StreamHandle stream) noexcept {
  const DriverScope scope = context_.enter();
  return context_.call(driver().GraphUpload, native<CUgraphExec>(executable), native<CUstream>(stream));
}

DeviceStatus CudaDevice::launch(ExecutableHandle executable, StreamHandle stream) noexcept {
  return context_.call(driver().GraphLaunch, native<CUgraphExec>(executable), native<CUstream>(stream));
}

DeviceStatus CudaDevice::destroy_executable(ExecutableHandle executable) noexcept {
  const DriverScope scope = context_.enter();
  return context_.call(driver().GraphExecDestroy, native<CUgraphExec>(executable));
}

}  // namespace weft::cuda
