#include "device/cuda/graph_contents.h"

#include <cstddef>

namespace weft::cuda {
namespace {

DeviceStatus read_nodes(PrimaryContext& context, CUgraph graph, GraphContents& contents) {
  const auto& get = context.driver().GraphGetNodes;
  std::size_t count = 0;
  const DeviceStatus status = context.call(get, graph, static_cast<CUgraphNode*>(nullptr), &count);
  if (!status.ok() || count == 0) return status;
  contents.nodes.resize(count);
  return context.call(get, graph, contents.nodes.data(), &count);
}

DeviceStatus read_edges(PrimaryContext& context, CUgraph graph, GraphContents& contents) {
  const auto& get = context.driver().GraphGetEdges;
  std::size_t count = 0;
  const DeviceStatus status =
      context.call(get, graph, static_cast<CUgraphNode*>(nullptr), static_cast<CUgraphNode*>(nullptr),
                   static_cast<CUgraphEdgeData*>(nullptr), &count);
  if (!status.ok() || count == 0) return status;
  contents.from.resize(count);
  contents.to.resize(count);
  contents.data.resize(count);
  return context.call(get, graph, contents.from.data(), contents.to.data(), contents.data.data(), &count);
}

}  // namespace

DeviceStatus read(PrimaryContext& context, CUgraph graph, GraphContents& contents) {
  const DeviceStatus status = read_nodes(context, graph, contents);
  return status.ok() ? read_edges(context, graph, contents) : status;
}

}  // namespace weft::cuda
