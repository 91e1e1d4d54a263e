#pragma once

#include "context_state.h"
#include "graph_memory.h"
#include "slot_plan.h"
#include <weft/budget.h>
#include <weft/plan/arena.h>
#include <weft/prepared.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace weft {

/// What stands before each allocation of its own; see PrepareOptions::separate_allocations.
inline constexpr std::uint64_t kCanaryBytes = kArenaAlignment;

/// Whether the options or the environment ask for separate allocations.
[[nodiscard]] bool separates_allocations(const PrepareOptions& options);

/// What a pool takes, in bytes, but for its graphs.
struct PoolNeed {
  std::uint64_t words = 0;    ///< Completion words.
  std::uint64_t staging = 0;  ///< Pinned memory of all slots.
  std::uint64_t device = 0;   ///< Device memory of all slots.
  GraphCount graphs;
};

using SlotPlans = std::span<const std::shared_ptr<const SlotPlan>>;

/// Of a pool with a slot of each plan. Errors: `invalid` beyond 2^64 bytes.
[[nodiscard]] PoolNeed need_of(const PrepareOptions& options, SlotPlans plans);
/// All of it, graphs as they are estimated. Errors: also those of `estimate_graphs`.
[[nodiscard]] std::uint64_t total_bytes(ContextState& context, const PoolNeed& need);

/// The charge of a pool, taken whole before anything is allocated, so that a budget refuses a pool before it costs
/// anything; then handed out part by part.
class PoolCharge {
 public:
  /// Errors: those of `total_bytes` and MemoryBudget::reserve.
  PoolCharge(ContextState& context, const PoolNeed& need, std::string_view title);

  [[nodiscard]] MemoryReservation take(std::uint64_t bytes) noexcept { return charge_.split(bytes); }
  /// The memory of the pool's graphs; what may still run keeps it.
  [[nodiscard]] const std::shared_ptr<GraphMemory>& graphs() const noexcept { return graphs_; }
  /// What a slot's run keeps until it has drained: the slot's memory and the graphs.
  [[nodiscard]] std::shared_ptr<const void> keep(std::shared_ptr<const void> memory) const;

 private:
  MemoryReservation charge_;
  std::shared_ptr<GraphMemory> graphs_;
};

}  // namespace weft
