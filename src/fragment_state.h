#pragma once

#include "operation.h"
#include <weft/context.h>
#include <weft/region.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

/// A validated fragment. Immutable. Its operations name the definition's allocations.
struct FragmentState {
  Context context;
  std::string label;
  std::vector<Allocation> allocations;
  std::vector<std::uint64_t> extents;  // Bytes used of each allocation.
  std::vector<Operation> operations;
  std::vector<TensorRegion> inputs;
  std::vector<TensorRegion> outputs;
  bool reuses_scratch = false;
};

}  // namespace weft
