#include "plan/access_summary.h"
#include "plan/hazard_inference.h"
#include "plan/reduction.h"
#include <weft/plan/schedule.h>

#include <algorithm>

namespace weft {
namespace {

/// Each command after the one before it.
Predecessors chain(std::size_t commands) {
  Predecessors predecessors;
  for (std::uint32_t command = 0; command < commands; ++command) {
    if (command > 0) predecessors.commands.push_back(command - 1);
    predecessors.offsets.push_back(predecessors.commands.size());
  }
  return predecessors;
}

/// Turns kept pairs into edges with reasons.
void add_edges(Schedule& schedule, const Predecessors& kept, std::span<const CommandUses> commands,
               const AccessSummary& summary) {
  schedule.edges.reserve(kept.commands.size());
  schedule.reasons.reserve(kept.commands.size());
  schedule.first_edge.reserve(commands.size() + 1);
  schedule.first_edge.push_back(0);
  std::vector<std::uint32_t> stated_by(commands.size(), schedule.commands);
  for (std::uint32_t to = 0; to < schedule.commands; ++to) {
    for (const std::uint32_t earlier : commands[to].after) stated_by[earlier] = to;
    for (const std::uint32_t from : kept[to]) {
      const std::size_t first = schedule.reasons.size();
      append_reasons(summary, from, to, stated_by[from] == to, schedule.reasons);
      if (schedule.reasons.size() == first) schedule.reasons.push_back({.kind = HazardKind::serial});
      schedule.edges.push_back({from, to, first, schedule.reasons.size() - first});
    }
    schedule.first_edge.push_back(schedule.edges.size());
  }
}

}  // namespace

std::string_view to_string(Order order) noexcept { return order == Order::parallel ? "parallel" : "serial"; }

std::span<const ScheduleEdge> Schedule::edges_into(std::uint32_t command) const noexcept {
  return {edges.data() + first_edge[command], first_edge[command + 1] - first_edge[command]};
}

std::span<const Reason> Schedule::reasons_of(const ScheduleEdge& edge) const noexcept {
  return {reasons.data() + edge.first_reason, edge.reason_count};
}

std::vector<std::uint32_t> Schedule::sources() const {
  std::vector<std::uint32_t> found;
  for (std::uint32_t command = 0; command < commands; ++command) {
    if (edges_into(command).empty()) found.push_back(command);
  }
  return found;
}

std::vector<std::uint32_t> Schedule::sinks() const {
  std::vector<bool> followed(commands, false);
  for (const ScheduleEdge& edge : edges) followed[edge.from] = true;
  std::vector<std::uint32_t> found;
  for (std::uint32_t command = 0; command < commands; ++command) {
    if (!followed[command]) found.push_back(command);
  }
  return found;
}

bool Schedule::is_only_sink(std::uint32_t command) const {
  // From every command some path leads to a sink, so a single sink has all others as ancestors.
  const std::vector<std::uint32_t> last = sinks();
  return last.size() == 1 && last.front() == command;
}

Schedule schedule(std::span<const CommandUses> commands, Order order) {
  validate(commands);
  const AccessSummary summary(commands);
  Schedule result;
  result.order = order;
  result.commands = static_cast<std::uint32_t>(commands.size());
  if (order == Order::serial) {
    add_edges(result, chain(commands.size()), commands, summary);
    return result;
  }
  const Predecessors inferred = infer(commands, summary);
  const Reduction reduction = reduce(inferred);
  result.redundant_edges = reduction.unproven;
  result.steps = inferred.steps + reduction.kept.steps;
  add_edges(result, reduction.kept, commands, summary);
  return result;
}

}  // namespace weft
