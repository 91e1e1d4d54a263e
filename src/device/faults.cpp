#include "device/faults.h"

#include <numeric>

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

namespace {

bool is_tried_again(Verb verb) noexcept {
  return verb == Verb::allocate || verb == Verb::allocate_pinned || verb == Verb::instantiate;
}

}  // namespace

DeviceStatus FailingDevice::health() const noexcept {
  if (failed_ && code_ == StatusCode::device_lost) return failure();
  return DeviceDecorator::health();
}

DeviceStatus FailingDevice::before(Verb verb) noexcept {
  if (failed_ && code_ == StatusCode::device_lost) return health();
  if (verb_ && *verb_ != verb) return {};
  const std::uint64_t call = calls_.fetch_add(1);
  if (failed_ && thread_ == std::this_thread::get_id() && repeated_ == verb) {
    repeated_.reset();
    return failure();
  }
  if (call != call_) return {};
  if (code_ == StatusCode::out_of_memory && is_tried_again(verb)) repeated_ = verb;
  thread_ = std::this_thread::get_id();
  failed_ = true;
  return failure();
}

// --- EdgeDroppingDevice --------------------------------------------------------------------------

std::vector<Edge> EdgeDroppingDevice::kept(std::span<const Edge> edges) {
  const std::uint64_t first = edges_.fetch_add(edges.size());
  std::vector<Edge> kept(edges.begin(), edges.end());
  if (edge_ >= first && edge_ - first < edges.size()) {
    kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(edge_ - first));
  }
  return kept;
}

DeviceStatus EdgeDroppingDevice::add_node(GraphHandle graph, const Node& node, std::span<const Edge> edges,
                                          NodeHandle& handle) noexcept {
  return DeviceDecorator::add_node(graph, node, kept(edges), handle);
}

DeviceStatus EdgeDroppingDevice::add_captured(GraphHandle graph, GraphHandle captured, std::span<const Edge> edges,
                                              std::vector<NodeHandle>& last) noexcept {
  return DeviceDecorator::add_captured(graph, captured, kept(edges), last);
}

}  // namespace weft
