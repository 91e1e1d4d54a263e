#include "plan/oracle.h"

#include <algorithm>
#include <array>

namespace weft::test {
namespace {

bool touches(const ByteUse& use, std::uint32_t allocation, std::uint64_t byte) {
  return use.allocation == allocation && use.begin <= byte && byte < use.end;
}

bool share_a_byte(const ByteUse& a, const ByteUse& b) {
  for (std::uint64_t byte = a.begin; byte < a.end; ++byte) {
    if (touches(b, a.allocation, byte)) return true;
  }
  return false;
}

bool must_stay_ordered(const CommandUses& earlier, const CommandUses& later) {
  for (const ByteUse& a : earlier.uses) {
    for (const ByteUse& b : later.uses) {
      const bool both_read = a.access == Access::read && b.access == Access::read;
      if (!both_read && share_a_byte(a, b)) return true;
    }
  }
  return false;
}

/// Whether the command reads (or else writes) that byte.
bool accesses(const CommandUses& command, std::uint32_t allocation, std::uint64_t byte, Access other_than) {
  return std::any_of(command.uses.begin(), command.uses.end(),
                     [&](const ByteUse& use) { return use.access != other_than && touches(use, allocation, byte); });
}

}  // namespace

std::size_t Relation::count() const { return static_cast<std::size_t>(std::count(cells_.begin(), cells_.end(), true)); }

Relation required_orders(std::span<const CommandUses> commands) {
  Relation required(commands.size());
  for (std::size_t later = 0; later < commands.size(); ++later) {
    for (std::size_t earlier = 0; earlier < later; ++earlier) {
      if (must_stay_ordered(commands[earlier], commands[later])) required.set(earlier, later);
    }
    for (const std::uint32_t earlier : commands[later].after) required.set(earlier, later);
  }
  return required;
}

Relation closure(std::size_t commands, std::span<const Pair> edges) {
  Relation reached(commands);
  for (const auto& [from, to] : edges) reached.set(from, to);
  for (std::size_t middle = 0; middle < commands; ++middle) {
    for (std::size_t from = 0; from < commands; ++from) {
      if (!reached.holds(from, middle)) continue;
      for (std::size_t to = 0; to < commands; ++to) {
        if (reached.holds(middle, to)) reached.set(from, to);
      }
    }
  }
  return reached;
}

std::optional<std::string> find_fault(std::span<const CommandUses> commands, std::span<const Pair> edges) {
  const auto name = [](std::size_t from, std::size_t to) { return std::to_string(from) + " -> " + std::to_string(to); };
  const Relation required = required_orders(commands);
  const Relation reached = closure(commands.size(), edges);
  for (const auto& [from, to] : edges) {
    if (!required.holds(from, to)) return "nothing asks for " + name(from, to);
    for (std::size_t middle = 0; middle < commands.size(); ++middle) {
      // In a graph without cycles an edge is implied exactly if some other command lies between its ends.
      if (reached.holds(from, middle) && reached.holds(middle, to)) return "others imply " + name(from, to);
    }
  }
  for (std::size_t from = 0; from < commands.size(); ++from) {
    for (std::size_t to = 0; to < commands.size(); ++to) {
      if (required.holds(from, to) && !reached.holds(from, to)) return "no path joins " + name(from, to);
    }
  }
  return std::nullopt;
}

std::vector<Reason> byte_reasons(const CommandUses& earlier, const CommandUses& later, bool stated,
                                 std::uint64_t bytes) {
  struct Kind {
    HazardKind kind;
    Access earlier_is_not;
    Access later_is_not;
  };
  constexpr std::array kinds{Kind{HazardKind::read_after_write, Access::read, Access::write},
                             Kind{HazardKind::write_after_read, Access::write, Access::read},
                             Kind{HazardKind::write_after_write, Access::read, Access::read}};
  std::vector<Reason> found;
  for (const Kind& kind : kinds) {
    for (std::uint32_t allocation = 0; allocation < 4; ++allocation) {
      bool open = false;
      for (std::uint64_t byte = 0; byte < bytes; ++byte) {
        const bool hazard = accesses(earlier, allocation, byte, kind.earlier_is_not) &&
                            accesses(later, allocation, byte, kind.later_is_not);
        if (hazard && !open) found.push_back({kind.kind, allocation, byte, byte});
        if (hazard) found.back().end = byte + 1;
        open = hazard;
      }
    }
  }
  if (stated) found.push_back({HazardKind::stated, kNoAllocation, 0, 0});
  return found;
}

std::vector<Pair> exact_edges(std::span<const CommandUses> commands, std::uint32_t allocations, std::uint64_t bytes) {
  struct Byte {
    std::optional<std::uint32_t> writer;
    std::vector<std::uint32_t> readers;
  };
  std::vector<Byte> memory(allocations * bytes);
  const std::size_t words = commands.size() / 64 + 1;
  std::vector<std::vector<std::uint64_t>> ancestors(commands.size(), std::vector<std::uint64_t>(words, 0));
  const auto is_ancestor = [&](std::uint32_t of, std::uint32_t who) {
    return (ancestors[of][who / 64] >> (who % 64) & 1) != 0;
  };
  std::vector<Pair> edges;
  for (std::uint32_t command = 0; command < commands.size(); ++command) {
    std::vector<std::uint32_t> before(commands[command].after);
    for (const ByteUse& use : commands[command].uses) {
      for (std::uint64_t at = use.begin; at < use.end; ++at) {
        const Byte& byte = memory[use.allocation * bytes + at];
        if (byte.writer) before.push_back(*byte.writer);
        if (use.access != Access::read) before.insert(before.end(), byte.readers.begin(), byte.readers.end());
      }
    }
    for (const ByteUse& use : commands[command].uses) {
      for (std::uint64_t at = use.begin; at < use.end; ++at) {
        Byte& byte = memory[use.allocation * bytes + at];
        if (use.access == Access::read) {
          byte.readers.push_back(command);
        } else {
          byte = {command, {}};
        }
      }
    }
    std::sort(before.begin(), before.end());
    before.erase(std::unique(before.begin(), before.end()), before.end());
    for (const std::uint32_t earlier : before) {
      const bool implied =
          std::any_of(before.begin(), before.end(), [&](std::uint32_t other) { return is_ancestor(other, earlier); });
      if (!implied) edges.emplace_back(earlier, command);
    }
    for (const std::uint32_t earlier : before) {
      for (std::size_t word = 0; word < words; ++word) ancestors[command][word] |= ancestors[earlier][word];
      ancestors[command][earlier / 64] |= std::uint64_t{1} << (earlier % 64);
    }
  }
  return edges;
}

std::vector<Pair> edges_of(const Schedule& schedule) {
  std::vector<Pair> edges;
  for (const ScheduleEdge& edge : schedule.edges) edges.emplace_back(edge.from, edge.to);
  return edges;
}

std::vector<CommandUses> random_program(std::mt19937& random, std::uint64_t bytes) {
  const auto below = [&](std::uint64_t limit) {
    return random() % limit;
  };  // A distribution differs between libraries.
  const std::uint64_t longest = 1 + below(bytes);
  const std::uint32_t allocations = static_cast<std::uint32_t>(1 + below(4));
  std::vector<CommandUses> program(2 + below(23));
  for (std::size_t position = 0; position < program.size(); ++position) {
    CommandUses& command = program[position];
    command.uses.resize(below(5));
    for (ByteUse& use : command.uses) {
      use.allocation = static_cast<std::uint32_t>(below(allocations));
      use.begin = below(bytes);
      use.end = std::min(bytes, use.begin + below(longest + 1));
      use.access = static_cast<Access>(below(3));
    }
    if (position > 0 && below(8) == 0) command.after.push_back(static_cast<std::uint32_t>(below(position)));
  }
  return program;
}

}  // namespace weft::test
