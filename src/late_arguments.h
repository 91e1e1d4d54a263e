#pragma once

#include "counters.h"
#include "device/device_api.h"
#include "graph_plan.h"
#include "late_plan.h"
#include "tracked_memory.h"
#include <weft/completion.h>
#include <weft/late.h>
#include <weft/region.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace weft {

/// What one request has brought to a slot, and what of it the slot's executables have. Belongs to who reserved the
/// slot, but for `patched`.
class LateArguments {
 public:
  /// Memory that a late region is bound to.
  struct BoundRegion {
    std::shared_ptr<TrackedMemory> memory;  ///< Null until it is bound.
    std::uint64_t offset = 0;               ///< Of the region's start in the memory.
    Completion completion;                  ///< When what is there is.

    [[nodiscard]] DeviceAddress address() const noexcept { return memory->address() + offset; }
  };

  /// `plan` outlives this object.
  explicit LateArguments(const LatePlan& plan);

  /// Learns the late nodes of the next form's executable as it was made: of `graph`, at these addresses.
  void add_executable(const GraphPlan& graph, std::span<const DeviceAddress> addresses);

  /// Errors: `invalid` for a scalar that the plan has not, or of another width.
  void set(LateScalarId scalar, std::span<const std::byte> value);
  /// Position in the plan. Errors: `invalid` for a region that the plan has not as a whole.
  [[nodiscard]] std::size_t find(const Region& region) const;
  void bind(std::size_t region, BoundRegion bound) noexcept { regions_[region] = std::move(bound); }
  /// By position in the plan.
  [[nodiscard]] std::span<const BoundRegion> regions() const noexcept { return regions_; }
  /// What the request brought goes: scalars have their own values again, and regions are unbound.
  void reset() noexcept;

  /// Errors: `invalid` where something is missing for a run.
  void require_complete() const;
  /// Sets the nodes of a form's executable that differ from what it has, and returns how many. Errors: what the device
  /// says; the next call then sets what this one has not. `nodes` are those of the graph that it was made from.
  std::uint32_t patch(DeviceApi& api, std::size_t form, ExecutableHandle executable, const GraphPlan& graph,
                      std::span<const NodeHandle> nodes);
  /// Nodes that were set so far. Thread-safe.
  [[nodiscard]] std::uint64_t patched() const noexcept { return patched_.value(); }

  /// The graph of a form, with what the request brought in place; its late regions are to be at `place`.
  [[nodiscard]] GraphPlan complete(GraphPlan graph, std::size_t form) const;
  void place(std::span<DeviceAddress> addresses) const noexcept;

 private:
  struct Scalar {
    std::uint64_t offset = 0;  // Of its bytes in values_.
    bool is_set = false;
  };
  /// A late node, as the executable has it unless it is stale.
  struct PatchedNode {
    Node node;
    bool is_stale = false;  // Setting it failed.
  };

  [[nodiscard]] std::span<const std::byte> value(std::size_t scalar) const noexcept;
  /// Puts what the request brought in place; whether the node changes by that.
  [[nodiscard]] bool update(const LateNodePlan& plan, Node& node) const noexcept;

  const LatePlan& plan_;
  std::vector<Scalar> scalars_;
  std::vector<std::byte> values_;
  std::vector<BoundRegion> regions_;
  std::vector<std::vector<PatchedNode>> executables_;  // By form.
  OwnedCounter patched_;
};

}  // namespace weft
