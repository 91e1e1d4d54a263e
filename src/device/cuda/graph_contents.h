#pragma once

#include "device/cuda/primary_context.h"

#include <vector>

namespace weft::cuda {

/// A graph's nodes, and the edges between them.
struct GraphContents {
  std::vector<CUgraphNode> nodes;
  std::vector<CUgraphNode> from;  ///< Of each edge, as the next two.
  std::vector<CUgraphNode> to;
  std::vector<CUgraphEdgeData> data;
};

/// Asks the driver for them. Throws std::bad_alloc.
DeviceStatus read(PrimaryContext& context, CUgraph graph, GraphContents& contents);

}  // namespace weft::cuda
