#include "device/host/host_graph.h"

#include "device/host/host_status.h"

#include <unordered_set>
#include <utility>

namespace weft {

namespace {

GraphReadBack::NodeReadBack describe(const HostGraph::Entry& entry) {
  using Kind = GraphReadBack::NodeReadBack::Kind;
  const BoundNode& bound = *entry.bound;
  if (std::holds_alternative<FillNode>(bound.node)) return {entry.handle, Kind::fill, {}};
  if (std::holds_alternative<CopyNode>(bound.node)) return {entry.handle, Kind::copy, {}};
  return {entry.handle, Kind::kernel, bound.kernel->symbol};
}

}  // namespace

DeviceStatus HostGraph::check_edges(const BoundNode& node, std::span<const Edge> edges) const {
  std::unordered_set<NodeHandle> seen;
  for (const Edge& edge : edges) {
    const auto found = positions_.find(edge.from);
    if (found == positions_.end()) return refused("an edge comes from a node that is not in the graph");
    if (!seen.insert(edge.from).second) return refused("two edges of one node come from the same node");
    const bool between_kernels = node.kernel && entries_[found->second].bound->kernel;
    if (edge.programmatic && !between_kernels) {
      return refused("a programmatic edge does not join two kernel nodes");
    }
  }
  return {};
}

void HostGraph::add(NodeHandle handle, std::shared_ptr<const BoundNode> node, std::span<const Edge> edges) {
  Entry entry{handle, std::move(node), {edges.begin(), edges.end()}, {}};
  for (const Edge& edge : edges) entry.after.push_back(positions_.at(edge.from));
  entries_.push_back(std::move(entry));
  positions_.emplace(handle, entries_.size() - 1);
}

DeviceStatus HostGraph::set(NodeHandle handle, std::shared_ptr<const BoundNode> node) {
  const auto found = positions_.find(handle);
  if (found == positions_.end()) return refused("the node to set is not in the graph");
  std::shared_ptr<const BoundNode>& bound = entries_[found->second].bound;
  if (bound->node.index() != node->node.index()) {
    return refused("a node is set to a node of another kind");
  }
  const auto* const old = std::get_if<KernelNode>(&bound->node);
  const auto* const launch = std::get_if<KernelNode>(&node->node);
  if (old != nullptr && (old->cluster != launch->cluster || old->cooperative != launch->cooperative)) {
    return refused("a kernel node is set to one of another cluster or cooperation");
  }
  bound = std::move(node);
  return {};
}

GraphReadBack HostGraph::read_back() const {
  GraphReadBack description;
  for (const Entry& entry : entries_) {
    description.nodes.push_back(describe(entry));
    for (const Edge& edge : entry.edges) {
      description.edges.push_back({edge.from, entry.handle, edge.programmatic});
    }
  }
  return description;
}

}  // namespace weft
