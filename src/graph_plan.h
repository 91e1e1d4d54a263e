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
  bool programmatic = true;                              ///< Whether edges that can be programmatic are.

  [[nodiscard]] bool is_programmatic(std::uint32_t from, std::size_t to) const noexcept {
    return programmatic && can_be_programmatic(operations[from], operations[to]);
  }
};

}  // namespace weft
