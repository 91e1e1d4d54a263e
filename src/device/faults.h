#pragma once

#include "device/device_decorator.h"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

// Test devices: they count another device's calls, fail one of them, or leave out one edge. device/trace_device.h
// writes them down.

namespace weft {

/// Counts calls by verb.
class CountingDevice final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;

  [[nodiscard]] std::uint64_t count(Verb verb) const noexcept {
    return counts_[static_cast<std::size_t>(verb)].load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t total() const noexcept;
  void reset() noexcept;

 private:
  DeviceStatus before(Verb verb) noexcept override;

  std::array<std::atomic<std::uint64_t>, kVerbCount> counts_{};
};

/// Fails one call. After a failure with `device_lost` every verb and `health` answer the same, as after a sticky error.
/// `out_of_memory` is also the answer to the thread's next call of the verb where weft makes one to try again.
class FailingDevice final : public DeviceDecorator {
 public:
  /// Fails the call number `call`, counted from 0 over the calls of `verb`, or over all calls where there is none.
  FailingDevice(std::shared_ptr<DeviceApi> inner, std::optional<Verb> verb, std::uint64_t call,
                StatusCode code) noexcept
      : DeviceDecorator(std::move(inner)), verb_(verb), call_(call), code_(code) {}

  DeviceStatus health() const noexcept override;
  /// Calls that were counted so far: those in a run that fails none are the numbers that can be failed.
  [[nodiscard]] std::uint64_t calls() const noexcept { return calls_.load(); }
  [[nodiscard]] bool has_failed() const noexcept { return failed_.load(); }

 private:
  DeviceStatus before(Verb verb) noexcept override;
  [[nodiscard]] DeviceStatus failure() const noexcept { return {code_, 0, "an injected failure"}; }

  const std::optional<Verb> verb_;
  const std::uint64_t call_;
  const StatusCode code_;
  std::optional<Verb> repeated_;  // Of the thread that failed, as the next.
  std::thread::id thread_;
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<bool> failed_{false};
};

/// Leaves one edge out of the graphs that are built through it: the mutation that a test of ordering must find.
/// Ends the process where the host has no memory for the other edges.
class EdgeDroppingDevice final : public DeviceDecorator {
 public:
  /// Drops the edge number `edge`, counted from 0 over all calls of add_node and add_captured.
  EdgeDroppingDevice(std::shared_ptr<DeviceApi> inner, std::uint64_t edge) noexcept
      : DeviceDecorator(std::move(inner)), edge_(edge) {}

  DeviceStatus add_node(GraphHandle graph, const Node& node, std::span<const Edge> edges,
                        NodeHandle& handle) noexcept override;
  DeviceStatus add_captured(GraphHandle graph, GraphHandle captured, std::span<const Edge> edges,
                            std::vector<NodeHandle>& last) noexcept override;
  /// Edges that were given so far, the dropped one among them.
  [[nodiscard]] std::uint64_t edges() const noexcept { return edges_.load(); }

 private:
  [[nodiscard]] std::vector<Edge> kept(std::span<const Edge> edges);

  const std::uint64_t edge_;
  std::atomic<std::uint64_t> edges_{0};
};

}  // namespace weft
