#pragma once

#include "operation.h"
#include <weft/context.h>
#include <weft/model.h>
#include <weft/region.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

/// A validated fragment. Immutable. Its operations name the definition's allocations, and behind them the workspaces of
/// its calls.
struct FragmentState {
  Context context;
  std::string label;
  std::vector<Allocation> allocations;
  std::vector<std::uint64_t> extents;  // Bytes used of each allocation.
  std::vector<Operation> operations;
  std::vector<TensorRegion> inputs;
  std::vector<TensorRegion> outputs;
  bool reuses_scratch = false;
  std::uint64_t session = 0;  // Whose regions and kernels they are; no other definition of the process has it.
};

/// Opens a ModelFragment to the files of the model and serving layers.
struct FragmentAccess {
  [[nodiscard]] static const FragmentState& state(const ModelFragment& fragment) noexcept { return *fragment.state_; }
};

}  // namespace weft
