#pragma once

#include "device/device_api.h"
#include "device/host/host_kernel.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

namespace weft {

/// A node together with the kernel that it launches. Immutable, so that a queued run keeps what it was launched with.
struct BoundNode {
  Node node;
  std::shared_ptr<const LoadedHostKernel> kernel = nullptr;  ///< Null for fills and copies.
  bool pageable_destination = false;                         ///< Copies: not memory of the device.
  bool pageable_source = false;
};

/// Nodes in the order of their addition, each with the positions of those that it depends on. Not thread-safe.
class HostGraph {
 public:
  struct Entry {
    NodeHandle handle = NodeHandle::none;
    std::shared_ptr<const BoundNode> bound;
    std::vector<Edge> edges;
    std::vector<std::size_t> after;  ///< Positions of the edges' nodes: all smaller than this one's.
  };

  /// Refuses edges that a driver refuses. Changes nothing.
  [[nodiscard]] DeviceStatus check_edges(const BoundNode& node, std::span<const Edge> edges) const;
  /// Edges must have been checked.
  void add(NodeHandle handle, std::shared_ptr<const BoundNode> node, std::span<const Edge> edges);
  /// Replaces a node by one of the same kind.
  [[nodiscard]] DeviceStatus set(NodeHandle handle, std::shared_ptr<const BoundNode> node);

  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
  [[nodiscard]] GraphReadBack read_back() const;

 private:
  std::vector<Entry> entries_;
  std::unordered_map<NodeHandle, std::size_t> positions_;
};

}  // namespace weft
