#pragma once

#include "operation.h"

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

/// What a device graph is built from, but for the addresses of the allocations that its operations name.
struct GraphPlan {
  std::string title;                                     ///< For errors.
  std::vector<Operation> operations;                     ///< Each after all that it depends on.
  std::vector<std::vector<std::uint32_t>> dependencies;  ///< Of each operation, ascending.
};

}  // namespace weft
