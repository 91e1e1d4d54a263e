#pragma once

#include <weft/export.h>
#include <weft/plan/hazard.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace weft {

/// How the commands of a list are ordered.
enum class Order : std::uint8_t {
  parallel,  ///< By their hazards alone.
  serial,    ///< One chain in list order, to tell a wrong contract from a wrong kernel.
};

/// "parallel" or "serial".
[[nodiscard]] WEFT_API std::string_view to_string(Order order) noexcept;

/// Command `to` waits for command `from`, which is the smaller position.
struct ScheduleEdge {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
  std::size_t first_reason = 0;  ///< In Schedule::reasons.
  std::size_t reason_count = 0;

  friend bool operator==(const ScheduleEdge&, const ScheduleEdge&) = default;
};

/// The edges that order a list of commands, each with all its reasons. Immutable once made; thread-safe to read.
struct WEFT_API Schedule {
  Order order = Order::parallel;
  std::uint32_t commands = 0;
  std::vector<ScheduleEdge> edges;      ///< Sorted by (to, from).
  std::vector<std::size_t> first_edge;  ///< `commands + 1` positions in `edges`.
  std::vector<Reason> reasons;
  std::uint64_t redundant_edges = 0;  ///< Edges kept without proof that each is needed; 0 when the reduction is exact.
  std::uint64_t steps = 0;            ///< Runs and nodes looked at: a cost that is the same on every machine.

  /// Edges that end at `command`, which is below `commands`. Valid as long as this object.
  [[nodiscard]] std::span<const ScheduleEdge> edges_into(std::uint32_t command) const noexcept;
  /// Why `edge` is there; never empty. Valid as long as this object.
  [[nodiscard]] std::span<const Reason> reasons_of(const ScheduleEdge& edge) const noexcept;
  /// Commands that wait for none, ascending. Cost: O(commands).
  [[nodiscard]] std::vector<std::uint32_t> sources() const;
  /// Commands that none waits for, ascending. Cost: O(commands + edges).
  [[nodiscard]] std::vector<std::uint32_t> sinks() const;
  /// True if every other command is an ancestor of `command`, which holds exactly if it is the one sink.
  [[nodiscard]] bool is_only_sink(std::uint32_t command) const;
};

/// Orders `commands`: infers their hazards and keeps the transitive reduction (Order::serial: the chain in list order).
///
/// The reduction is exact for at most 10,000 commands. For more it is exact if the exact test, which takes any width,
/// needs at most 2^36 word operations (a million commands with three predecessors each, whatever their order: tens of
/// seconds), or if a table of commands times chains has at most 2^27 entries (64 chains for two million commands; the
/// decomposition is greedy and may take more chains than the list is wide). A pair beyond both is kept and counted in
/// `redundant_edges`.
///
/// Same result every time. Thread-safe (pure). Errors: those of `validate`.
/// Cost: that of `infer`, and near-linear in its pairs where hazards join commands that stand near one another; in the
/// worst case commands times pairs over 64 word operations.
[[nodiscard]] WEFT_API Schedule schedule(std::span<const CommandUses> commands, Order order = Order::parallel);

}  // namespace weft
