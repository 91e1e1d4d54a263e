#pragma once

#include "device/device_api.h"
#include "late_declaration.h"
#include "loaded_kernel.h"
#include "tracked_memory.h"
#include "weight.h"
#include <weft/captured.h>
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
  friend bool operator==(const Location&, const Location&) = default;
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

/// Where a late scalar stands in a parameter block.
struct LateScalarSlot {
  std::uint32_t block_offset = 0;
  std::uint32_t parameter = 0;
  std::shared_ptr<const LateScalarDeclaration> scalar;
};

struct DispatchOperation {
  std::shared_ptr<const LoadedKernel> kernel;
  Dim3 grid;
  std::uint32_t dynamic_shared_bytes = 0;
  std::vector<std::byte> parameters;  // Scalars in place, late ones by their own value; pointers zero.
  std::vector<PointerSlot> pointers;
  std::vector<LateScalarSlot> late = {};
};

/// A call of a library, whose nodes are recorded for each slot.
struct CapturedOperation {
  std::shared_ptr<const Captured> call;
  std::uint64_t id = 0;  // Tells it from every other call of the process.
  std::vector<Location> bindings;
  std::optional<Location> workspace;
};

struct Operation {
  std::string label;
  std::variant<FillOperation, CopyOperation, DispatchOperation, CapturedOperation> action;
  CommandUses uses;
  std::optional<OwnRole> role;  // Set on weft's own.
};

[[nodiscard]] inline bool is_captured(const Operation& operation) noexcept {
  return std::holds_alternative<CapturedOperation>(operation.action);
}

/// Whether the node of `to` may start while that of `from` still runs. Both kernels promise to wait for what they
/// depend on before they touch memory and before they end, so the end of `from` stands for the end of all before it;
/// and both run as code that can wait.
[[nodiscard]] inline bool can_be_programmatic(const Operation& from, const Operation& to) noexcept {
  constexpr std::uint32_t kFirstVersion = 90;
  const auto waits = [](const Operation& operation) {
    const auto* dispatch = std::get_if<DispatchOperation>(&operation.action);
    return dispatch != nullptr && dispatch->kernel->spec.programmatic && !dispatch->kernel->spec.cooperative &&
           dispatch->kernel->compiled.binary_version >= kFirstVersion;
  };
  return waits(from) && waits(to);
}

/// What an index of an operation stands for.
struct Allocation {
  std::string label;
  std::uint64_t bytes = 0;
  Placement placement = Placement::device;
  std::shared_ptr<const Weight> weight = nullptr;   // Null for scratch.
  std::shared_ptr<TrackedMemory> memory = nullptr;  // State, or memory outside the slot that stands in for scratch.
  std::uint32_t users = 1;                          // Fragments that take turns with it.
  std::shared_ptr<const LateRegionDeclaration> late = nullptr;  // Memory that requests bring.

  /// Whether each slot has memory of its own for it.
  [[nodiscard]] bool is_private() const noexcept { return weight == nullptr && memory == nullptr && late == nullptr; }
};

/// Index of the allocation that stands for `memory`, if there is one.
[[nodiscard]] inline std::optional<std::uint32_t> find_memory(const std::vector<Allocation>& allocations,
                                                              const TrackedMemory* memory) noexcept {
  for (std::size_t i = 0; i < allocations.size(); ++i) {
    if (allocations[i].memory.get() == memory) return static_cast<std::uint32_t>(i);
  }
  return {};
}

/// The same; one is added where there is none.
[[nodiscard]] inline std::uint32_t find_or_add_memory(std::vector<Allocation>& allocations,
                                                      const std::shared_ptr<TrackedMemory>& memory) {
  if (const auto found = find_memory(allocations, memory.get())) return *found;
  allocations.push_back({.label = memory->label(),
                         .bytes = memory->bytes(),
                         .placement = memory->placement(),
                         .weight = nullptr,
                         .memory = memory});
  return static_cast<std::uint32_t>(allocations.size() - 1);
}

}  // namespace weft
