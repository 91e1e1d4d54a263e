#include "plan/boundaries.h"

#include <algorithm>
#include <cstdint>

namespace weft {
namespace {

struct Endpoint {
  std::uint64_t offset = 0;
  std::size_t slot = 0;  ///< 2 x range, plus one for its end.
};

/// Small numbers for allocation ids: the ids themselves where they are dense enough to index with.
class AllocationIndex {
 public:
  explicit AllocationIndex(std::span<const ByteRange> ranges) {
    std::uint32_t largest = 0;
    for (const ByteRange& range : ranges) largest = std::max(largest, range.allocation);
    if (largest < 4 * ranges.size() + 64) {
      size_ = std::size_t{largest} + 1;
      return;
    }
    sorted_.reserve(ranges.size());
    for (const ByteRange& range : ranges) sorted_.push_back(range.allocation);
    std::sort(sorted_.begin(), sorted_.end());
    sorted_.erase(std::unique(sorted_.begin(), sorted_.end()), sorted_.end());
    size_ = sorted_.size();
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t operator[](std::uint32_t allocation) const {
    if (sorted_.empty()) return allocation;
    const auto found = std::lower_bound(sorted_.begin(), sorted_.end(), allocation);
    return static_cast<std::size_t>(found - sorted_.begin());
  }

 private:
  std::vector<std::uint32_t> sorted_;  ///< Empty if ids stand for themselves.
  std::size_t size_ = 0;
};

/// All endpoints grouped by allocation; `ends[a]` is where the group of allocation index a ends.
struct Groups {
  std::vector<Endpoint> endpoints;
  std::vector<std::size_t> ends;
};

Groups group_endpoints(std::span<const ByteRange> ranges) {
  const AllocationIndex index(ranges);
  Groups groups;
  // A counting sort: after it each group's start has moved up to the group's end.
  groups.ends.assign(index.size() + 1, 0);
  for (const ByteRange& range : ranges) groups.ends[index[range.allocation] + 1] += 2;
  for (std::size_t a = 0; a < index.size(); ++a) groups.ends[a + 1] += groups.ends[a];
  groups.endpoints.resize(2 * ranges.size());
  for (std::size_t r = 0; r < ranges.size(); ++r) {
    std::size_t& next = groups.ends[index[ranges[r].allocation]];
    groups.endpoints[next++] = {ranges[r].begin, 2 * r};
    groups.endpoints[next++] = {ranges[r].end, 2 * r + 1};
  }
  groups.ends.pop_back();
  return groups;
}

}  // namespace

Boundaries number_boundaries(std::span<const ByteRange> ranges) {
  Groups groups = group_endpoints(ranges);
  Boundaries boundaries;
  boundaries.ranges.resize(ranges.size());
  auto first = groups.endpoints.begin();
  for (const std::size_t group_end : groups.ends) {
    const auto last = groups.endpoints.begin() + static_cast<std::ptrdiff_t>(group_end);
    if (first == last) continue;
    std::sort(first, last, [](const Endpoint& a, const Endpoint& b) { return a.offset < b.offset; });
    boundaries.allocation_begins.push_back(boundaries.count);
    for (auto point = first; point != last; ++point) {
      if (point != first && point->offset != (point - 1)->offset) ++boundaries.count;
      BoundaryRange& range = boundaries.ranges[point->slot / 2];
      (point->slot % 2 == 0 ? range.begin : range.end) = boundaries.count;
    }
    ++boundaries.count;
    first = last;
  }
  return boundaries;
}

}  // namespace weft
