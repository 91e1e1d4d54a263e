#include "device/faults.h"

#include <numeric>
#include <vector>

namespace weft {

// --- CountingDevice ------------------------------------------------------------------------------

DeviceStatus CountingDevice::before(Verb verb) noexcept {
  counts_[static_cast<std::size_t>(verb)].fetch_add(1, std::memory_order_relaxed);
  return {};
}

std::uint64_t CountingDevice::total() const noexcept {
  return std::accumulate(counts_.begin(), counts_.end(), std::uint64_t{0});
}

void CountingDevice::reset() noexcept {
  for (std::atomic<std::uint64_t>& count : counts_) count = 0;
}

// --- FailingDevice -------------------------------------------------------------------------------

DeviceStatus FailingDevice::health() const noexcept {
  if (failed_ && code_ == StatusCode::device_lost) return {code_, 0, "an injected failure"};
  return DeviceDecorator::health();
}

DeviceStatus FailingDevice::before(Verb verb) noexcept {
  if (failed_ && code_ == StatusCode::device_lost) return health();
  if (verb_ && *verb_ != verb) return {};
  if (calls_.fetch_add(1) != call_) return {};
  failed_ = true;
  return {code_, 0, "an injected failure"};
}

// --- EdgeDroppingDevice --------------------------------------------------------------------------

DeviceStatus EdgeDroppingDevice::add_node(GraphHandle graph, const Node& node, std::span<const Edge> edges,
                                          NodeHandle& handle) noexcept {
  const std::uint64_t first = edges_.fetch_add(edges.size());
  if (edge_ < first || edge_ - first >= edges.size()) {
    return DeviceDecorator::add_node(graph, node, edges, handle);
  }
  std::vector<Edge> kept(edges.begin(), edges.end());
  kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(edge_ - first));
  return DeviceDecorator::add_node(graph, node, kept, handle);
}

}  // namespace weft
