#pragma once

#include "plan/access_summary.h"

#include <cstddef>
#include <span>
#include <vector>

namespace weft {

/// A range as positions among all boundaries.
struct BoundaryRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Every offset at which some range begins or ends, numbered by allocation and offset. Since a list of commands is
/// known as a whole, byte ranges become ranges of these numbers, and ordered structures over them can be flat.
struct Boundaries {
  std::vector<BoundaryRange> ranges;           ///< One for each byte range, in the order given.
  std::vector<std::size_t> allocation_begins;  ///< The first boundary of each allocation, ascending.
  std::size_t count = 0;
};

/// Cost: O(ranges x log ranges of the same allocation).
[[nodiscard]] Boundaries number_boundaries(std::span<const ByteRange> ranges);

}  // namespace weft
