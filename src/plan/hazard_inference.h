#pragma once

#include "plan/access_summary.h"
#include <weft/plan/hazard.h>

#include <cstddef>
#include <span>
#include <vector>

namespace weft {

/// `infer` for validated commands whose summary exists already.
[[nodiscard]] Predecessors infer(std::span<const CommandUses> commands, const AccessSummary& summary);

/// Appends why command `to` must wait for command `from`, as `reasons` does.
void append_reasons(const AccessSummary& summary, std::size_t from, std::size_t to, bool stated,
                    std::vector<Reason>& reasons);

}  // namespace weft
