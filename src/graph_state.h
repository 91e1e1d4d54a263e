#pragma once

#include "operation.h"
#include <weft/context.h>
#include <weft/graph.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace weft {

/// An unprepared graph. Its operations name its own allocations.
struct GraphState {
  std::uint64_t id;
  Context context;
  std::string label;
  std::vector<Allocation> allocations = {};
  std::vector<Operation> operations = {};
  std::vector<std::uint32_t> scratch_pool = {};  ///< Allocations that fragments take turns with, in order of creation.
};

/// Opens a Graph to the files of the model layer.
struct GraphAccess {
  /// Errors: `invalid` for a moved-from graph.
  [[nodiscard]] static GraphState& state(const Graph& graph);
};

}  // namespace weft
