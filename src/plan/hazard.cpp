#include "plan/frontier.h"
#include "plan/hazard_inference.h"
#include <weft/error.h>
#include <weft/plan/hazard.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <tuple>

namespace weft {
namespace {

constexpr std::uint32_t kNobody = std::numeric_limits<std::uint32_t>::max();
constexpr std::size_t kMostCommands = kNobody;

void validate(const CommandUses& command, std::size_t position) {
  for (const std::uint32_t earlier : command.after) {
    if (earlier >= position) {
      throw Error(ErrorCode::invalid,
                  fmt::format("commands[{}] is stated to run after commands[{}], which is not an earlier command.",
                              position, earlier));
    }
  }
  for (const ByteUse& use : command.uses) {
    if (use.allocation == kNoAllocation) {
      throw Error(ErrorCode::invalid, fmt::format("commands[{}] uses allocation {}, beyond the limit of {}.", position,
                                                  use.allocation, kNoAllocation - 1));
    }
    if (use.begin > use.end) {
      throw Error(ErrorCode::invalid,
                  fmt::format("commands[{}] uses bytes {}..{} of allocation {}, which end before they begin.", position,
                              use.begin, use.end, use.allocation));
    }
  }
}

/// The bytes that two sorted sets share, as reasons of one kind.
void append_shared(std::span<const ByteRange> a, std::span<const ByteRange> b, HazardKind kind,
                   std::vector<Reason>& reasons) {
  auto left = a.begin();
  auto right = b.begin();
  while (left != a.end() && right != b.end()) {
    if (left->allocation == right->allocation) {
      const std::uint64_t begin = std::max(left->begin, right->begin);
      const std::uint64_t end = std::min(left->end, right->end);
      if (begin < end) reasons.push_back({kind, left->allocation, begin, end});
    }
    if (std::tie(left->allocation, left->end) < std::tie(right->allocation, right->end)) {
      ++left;
    } else {
      ++right;
    }
  }
}

}  // namespace

std::string_view to_string(HazardKind kind) noexcept {
  switch (kind) {
    case HazardKind::read_after_write:
      return "raw";
    case HazardKind::write_after_read:
      return "war";
    case HazardKind::write_after_write:
      return "waw";
    case HazardKind::stated:
      return "stated";
    case HazardKind::serial:
      return "serial";
  }
  return "unknown";
}

void validate(std::span<const CommandUses> commands) {
  if (commands.size() > kMostCommands) {
    throw Error(ErrorCode::invalid,
                fmt::format("The list has {} commands, more than the limit of {}.", commands.size(), kMostCommands));
  }
  for (std::size_t position = 0; position < commands.size(); ++position) validate(commands[position], position);
}

Predecessors infer(std::span<const CommandUses> commands) {
  validate(commands);
  return infer(commands, AccessSummary(commands));
}

Predecessors infer(std::span<const CommandUses> commands, const AccessSummary& summary) {
  const Boundaries boundaries = number_boundaries(summary.ranges());
  Frontier frontier(boundaries);
  Predecessors predecessors;
  predecessors.offsets.reserve(commands.size() + 1);
  // The last command that follows each command: keeps every pair single.
  std::vector<std::uint32_t> followed_by(commands.size(), kNobody);
  auto range = boundaries.ranges.begin();
  for (std::uint32_t command = 0; command < commands.size(); ++command) {
    const auto follow = [&](std::uint32_t earlier) {
      if (followed_by[earlier] == command) return;
      followed_by[earlier] = command;
      predecessors.commands.push_back(earlier);
    };
    for (std::size_t read = summary.reads(command).size(); read > 0; --read) frontier.read(command, *range++, follow);
    for (std::size_t write = summary.writes(command).size(); write > 0; --write)
      frontier.write(command, *range++, follow);
    for (const std::uint32_t earlier : commands[command].after) follow(earlier);
    const auto first = predecessors.commands.begin() + static_cast<std::ptrdiff_t>(predecessors.offsets.back());
    std::sort(first, predecessors.commands.end());
    predecessors.offsets.push_back(predecessors.commands.size());
  }
  predecessors.steps = frontier.steps();
  return predecessors;
}

void append_reasons(const AccessSummary& summary, std::size_t from, std::size_t to, bool stated,
                    std::vector<Reason>& reasons) {
  append_shared(summary.writes(from), summary.reads(to), HazardKind::read_after_write, reasons);
  append_shared(summary.reads(from), summary.writes(to), HazardKind::write_after_read, reasons);
  append_shared(summary.writes(from), summary.writes(to), HazardKind::write_after_write, reasons);
  if (stated) reasons.push_back({});
}

std::vector<Reason> reasons(const CommandUses& earlier, const CommandUses& later, bool stated) {
  AccessSummary summary;
  summary.add(earlier);
  summary.add(later);
  std::vector<Reason> found;
  append_reasons(summary, 0, 1, stated, found);
  return found;
}

}  // namespace weft
