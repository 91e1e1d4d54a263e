#pragma once

#include "late_declaration.h"
#include "operation.h"
#include <weft/contract.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace weft {

/// Memory that requests bring to a slot.
struct LateRegionPlan {
  /// What runs do to the bytes [begin, end) of it.
  struct Use {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    Access access = Access::read;
  };

  std::shared_ptr<const LateRegionDeclaration> declaration;
  std::uint32_t allocation = 0;  ///< Of the slot's plan.
  std::uint64_t alignment = 1;   ///< Of which its address must be a multiple.
  std::vector<Use> uses;
};

/// A node that changes with what requests bring.
struct LateNodePlan {
  struct ScalarPlace {
    std::uint32_t block_offset = 0;
    std::uint32_t scalar = 0;  ///< Position in LatePlan::scalars.
  };
  /// Where a pointer stands: in the parameter block of a kernel; a fill has one and no block.
  struct PointerPlace {
    std::uint32_t block_offset = 0;
    std::uint32_t region = 0;  ///< Position in LatePlan::regions.
    std::uint64_t offset = 0;  ///< Bytes from the start of the region.
  };

  std::uint32_t operation = 0;  ///< Of the form's graph.
  std::vector<ScalarPlace> scalars;
  std::vector<PointerPlace> pointers;
};

/// What requests bring to the slots of a plan, and which nodes take it.
struct LatePlan {
  std::vector<std::shared_ptr<const LateScalarDeclaration>> scalars;
  std::vector<LateRegionPlan> regions;
  std::vector<std::vector<LateNodePlan>> forms;  ///< By form, ascending by operation.

  [[nodiscard]] bool is_empty() const noexcept { return scalars.empty() && regions.empty(); }
};

/// What the operations of a graph take late; its forms are yet to be added. `allocations` are those that they name.
[[nodiscard]] LatePlan plan_late(std::span<const Allocation> allocations, std::span<const Operation> operations);

/// Adds a form with these operations, and marks those of its fills that are late.
void add_late_form(LatePlan& plan, std::span<const Operation> operations);

}  // namespace weft
