#pragma once

#include "device/device_api.h"
#include "device/handles.h"
#include "graph_plan.h"

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace weft {

/// A graph on the device from which executables are stamped: its nodes are pointed at one slot's memory after
/// another's, and each time made into an executable, which costs less than building a graph for each.
///
/// The one path from plans to device graphs: a fill becomes a memset node, a dispatch a kernel node, each with the
/// plan's edges. Used by one thread at a time.
class GraphTemplate {
 public:
  /// Builds the graph of `plan`. `addresses` are those of the allocations that the plan names.
  GraphTemplate(const std::shared_ptr<DeviceApi>& api, const GraphPlan& plan, std::span<const DeviceAddress> addresses);

  /// Sets every node to the operation of `plan`, which has the shape of the plan that the graph was built from.
  void point_at(const GraphPlan& plan, std::span<const DeviceAddress> addresses);

  /// An executable of the graph as it is pointed now.
  [[nodiscard]] UniqueExecutable instantiate() const;

  [[nodiscard]] GraphHandle graph() const noexcept { return graph_.get(); }
  /// Hands the graph to the caller.
  [[nodiscard]] UniqueGraph take() noexcept { return std::move(graph_); }
  /// Of each operation of the plan.
  [[nodiscard]] const std::vector<NodeHandle>& nodes() const noexcept { return nodes_; }

 private:
  std::shared_ptr<DeviceApi> api_;
  UniqueGraph graph_;
  std::vector<NodeHandle> nodes_;
};

}  // namespace weft
