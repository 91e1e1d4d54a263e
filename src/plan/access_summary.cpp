#include "plan/access_summary.h"

#include <algorithm>
#include <tuple>

namespace weft {
namespace {

bool before(const ByteRange& a, const ByteRange& b) {
  return std::tie(a.allocation, a.begin) < std::tie(b.allocation, b.begin);
}

/// Joins sorted ranges that overlap or touch; returns where the joined ones end.
std::vector<ByteRange>::iterator join(std::vector<ByteRange>::iterator first, std::vector<ByteRange>::iterator last) {
  if (first == last) return last;
  auto joined = first;
  for (auto next = first + 1; next != last; ++next) {
    if (next->allocation == joined->allocation && next->begin <= joined->end) {
      joined->end = std::max(joined->end, next->end);
    } else {
      *++joined = *next;
    }
  }
  return joined + 1;
}

}  // namespace

AccessSummary::AccessSummary(std::span<const CommandUses> commands) {
  std::size_t uses = 0;
  for (const CommandUses& command : commands) uses += command.uses.size();
  ranges_.reserve(uses);
  offsets_.reserve(2 * commands.size() + 1);
  for (const CommandUses& command : commands) add(command);
}

void AccessSummary::add(const CommandUses& command) {
  add_set(command, [](Access access) { return weft::reads(access); });
  add_set(command, [](Access access) { return weft::writes(access); });
}

void AccessSummary::add_set(const CommandUses& command, bool (*selects)(Access)) {
  const auto first = static_cast<std::ptrdiff_t>(ranges_.size());
  for (const ByteUse& use : command.uses) {
    if (selects(use.access) && use.begin < use.end) {
      ranges_.push_back({use.allocation, use.begin, use.end});
    }
  }
  std::sort(ranges_.begin() + first, ranges_.end(), before);
  ranges_.erase(join(ranges_.begin() + first, ranges_.end()), ranges_.end());
  offsets_.push_back(ranges_.size());
}

}  // namespace weft
