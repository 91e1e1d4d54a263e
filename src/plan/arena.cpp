#include "checked_math.h"
#include <weft/error.h>
#include <weft/plan/arena.h>

#include <spdlog/fmt/fmt.h>

#include <cstddef>
#include <limits>

namespace weft {

ArenaPlan plan_arena(std::span<const std::uint64_t> sizes) {
  ArenaPlan plan;
  plan.offsets.reserve(sizes.size());
  for (std::size_t position = 0; position < sizes.size(); ++position) {
    const auto end = checked_add(plan.reserved, sizes[position]);
    const auto next = end ? checked_align_up(*end, kArenaAlignment) : end;
    if (!next) {
      throw Error(
          ErrorCode::invalid,
          fmt::format(
              "Allocation {} of {} bytes ends the arena beyond the limit of {} bytes: {} bytes stand before it.",
              position, sizes[position], std::numeric_limits<std::uint64_t>::max(), plan.reserved));
    }
    plan.offsets.push_back(plan.reserved);
    plan.requested += sizes[position];
    plan.reserved = *next;
  }
  return plan;
}

}  // namespace weft
