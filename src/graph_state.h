#pragma once

#include "operation.h"
#include <weft/context.h>
#include <weft/device_tensor.h>
#include <weft/graph.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {

/// An unprepared graph. Its operations name its own allocations.
struct GraphState {
  std::uint64_t id;
  Context context;
  std::string label;
  std::vector<Allocation> allocations;
  std::vector<Operation> operations;
};

/// Opens a Graph to the files of the model layer.
struct GraphAccess {
  /// Errors: `invalid` for a moved-from graph.
  [[nodiscard]] static GraphState& state(const Graph& graph);
};

/// Opens a DeviceTensor to the files of the model layer.
struct DeviceTensorAccess {
  [[nodiscard]] static DeviceTensor make(TensorDesc desc, std::uint64_t graph, std::uint32_t allocation,
                                         std::uint64_t offset) {
    return {std::move(desc), graph, allocation, offset};
  }
  [[nodiscard]] static std::uint64_t graph(const DeviceTensor& tensor) noexcept { return tensor.graph_; }
  [[nodiscard]] static Location location(const DeviceTensor& tensor) noexcept {
    return {tensor.allocation_, tensor.offset_};
  }
};

}  // namespace weft
