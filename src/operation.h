#pragma once

#include "buffer.h"
#include "device/device_api.h"
#include "loaded_kernel.h"
#include <weft/contract.h>
#include <weft/plan/hazard.h>
#include <weft/plan/topology.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

// Commands after validation. Allocations are named by index: a fragment's by those of its session, a graph's by its
// own.

namespace weft {

/// A place in an allocation that gets its address when a slot is made.
struct Location {
  std::uint32_t allocation = 0;
  std::uint64_t offset = 0;
};

struct FillOperation {
  Location destination;
  std::uint64_t bytes = 0;
  std::uint8_t value = 0;
};

/// A copy by a copy engine; weft's own.
struct CopyOperation {
  Location destination;
  Location source;
  std::uint64_t bytes = 0;
};

/// Where a device pointer stands in a parameter block, and what it points to.
struct PointerSlot {
  std::uint32_t block_offset = 0;
  Location target;
};

struct DispatchOperation {
  std::shared_ptr<const LoadedKernel> kernel;
  Dim3 grid;
  std::uint32_t dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;  // Scalars in place, pointers zero.
  std::vector<PointerSlot> pointers;
};

struct Operation {
  std::string label;
  std::variant<FillOperation, CopyOperation, DispatchOperation> action;
  CommandUses uses;
  std::optional<OwnRole> role;  // Set on weft's own.
};

/// What an index of an operation stands for.
struct Allocation {
  std::string label;
  std::uint64_t bytes = 0;
  Placement placement = Placement::device;
  std::shared_ptr<const Weight> weight;  // Null for scratch.
};

}  // namespace weft
