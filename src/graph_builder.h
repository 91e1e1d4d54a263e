#pragma once

#include "device/device_api.h"
#include "device/handles.h"
#include "slot_plan.h"

#include <memory>
#include <span>
#include <vector>

namespace weft {

/// A slot's graph on the device.
struct BuiltGraph {
  UniqueGraph graph;
  std::vector<NodeHandle> nodes;  ///< Of each operation of the plan.
  UniqueExecutable executable;
};

/// The one path from a plan to a device graph: a fill becomes a memset node, a dispatch a kernel node, each with the
/// plan's edges. `addresses` are those of the plan's allocations.
[[nodiscard]] BuiltGraph build_graph(const std::shared_ptr<DeviceApi>& api, const SlotPlan& plan,
                                     std::span<const DeviceAddress> addresses);

}  // namespace weft
