#pragma once

#include "device/device_api.h"
#include "device/handles.h"
#include "graph_plan.h"

#include <cstddef>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft {

/// An operation that is no call as a node, at the addresses of the allocations that it names. A fill whose destination
/// is late, and stands nowhere yet, is one of a single byte.
[[nodiscard]] Node make_node(const Operation& operation, std::span<const DeviceAddress> addresses);

/// A graph on the device from which executables are stamped: its nodes are pointed at one slot's memory after
/// another's, and each time made into an executable, which costs less than building a graph for each.
///
/// The one path from plans to device graphs: a fill becomes a memset node, a dispatch a kernel node, each with the
/// plan's edges. Used by one thread at a time.
class GraphTemplate {
 public:
  /// Builds the graph of `plan`. `addresses` are those of the allocations that the plan names, and `captured` the
  /// recorded nodes of its calls, in order.
  GraphTemplate(const std::shared_ptr<DeviceApi>& api, const GraphPlan& plan, std::span<const DeviceAddress> addresses,
                std::span<const UniqueGraph> captured);

  /// Sets every node to the operation of `plan`, which has the shape of the plan that the graph was built from, and no
  /// calls.
  void point_at(const GraphPlan& plan, std::span<const DeviceAddress> addresses);

  /// An executable of the graph as it is pointed now.
  [[nodiscard]] UniqueExecutable instantiate() const;

  [[nodiscard]] GraphHandle graph() const noexcept { return graph_.get(); }
  /// Hands the graph to the caller.
  [[nodiscard]] UniqueGraph take() noexcept { return std::move(graph_); }
  /// Of each operation of the plan; none for a call, which has any number.
  [[nodiscard]] const std::vector<NodeHandle>& nodes() const noexcept { return nodes_; }

 private:
  /// Edges into an operation from all that it depends on.
  void find_edges(const GraphPlan& plan, std::size_t operation, std::vector<Edge>& edges) const;

  std::shared_ptr<DeviceApi> api_;
  UniqueGraph graph_;
  std::vector<NodeHandle> nodes_;
  std::unordered_map<std::size_t, std::vector<NodeHandle>> last_;  // The last nodes of calls, by operation.
};

}  // namespace weft
