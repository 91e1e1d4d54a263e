#include "late_plan.h"

#include "plan/access_summary.h"

#include <algorithm>
#include <optional>
#include <utility>

namespace weft {

namespace {

template <class Entries, class Is>
std::optional<std::uint32_t> position_in(const Entries& entries, const Is& is) {
  const auto found = std::ranges::find_if(entries, is);
  if (found == entries.end()) return {};
  return static_cast<std::uint32_t>(found - entries.begin());
}

std::optional<std::uint32_t> region_at(const LatePlan& plan, std::uint32_t allocation) {
  return position_in(plan.regions, [&](const LateRegionPlan& region) { return region.allocation == allocation; });
}

std::optional<std::uint32_t> position_of(const LatePlan& plan, const LateScalarDeclaration* scalar) {
  return position_in(plan.scalars, [&](const auto& known) { return known.get() == scalar; });
}

void add_uses(LatePlan& plan, std::span<const Operation> operations) {
  CommandUses late;
  for (const Operation& operation : operations) {
    for (const ByteUse& use : operation.uses.uses) {
      if (region_at(plan, use.allocation)) late.uses.push_back(use);
    }
  }
  const AccessSummary summary(std::span(&late, 1));
  const auto add = [&](std::span<const ByteRange> ranges, Access access) {
    for (const ByteRange& range : ranges)
      plan.regions[*region_at(plan, range.allocation)].uses.push_back({range.begin, range.end, access});
  };
  add(summary.writes(0), Access::write);
  add(summary.reads(0), Access::read);
}

void add_arguments(LatePlan& plan, const DispatchOperation& dispatch) {
  for (const LateScalarSlot& late : dispatch.late) {
    if (!position_of(plan, late.scalar.get())) plan.scalars.push_back(late.scalar);
  }
  for (const PointerSlot& pointer : dispatch.pointers) {
    const auto region = region_at(plan, pointer.target.allocation);
    if (!region) continue;
    // The pointer's offset in its region was held against the same alignment when the command was validated.
    const auto parameter = parameter_at(*dispatch.kernel, pointer.block_offset);
    std::uint64_t& alignment = plan.regions[*region].alignment;
    if (parameter) {
      alignment = std::max<std::uint64_t>(alignment, dispatch.kernel->spec.parameters[*parameter].required_alignment());
    }
  }
}

}  // namespace

LatePlan plan_late(std::span<const Allocation> allocations, std::span<const Operation> operations) {
  LatePlan plan;
  for (std::uint32_t i = 0; i < allocations.size(); ++i) {
    if (allocations[i].late != nullptr) plan.regions.push_back({allocations[i].late, i, 1, {}});
  }
  if (!plan.regions.empty()) add_uses(plan, operations);
  for (const Operation& operation : operations) {
    const auto* dispatch = std::get_if<DispatchOperation>(&operation.action);
    if (dispatch != nullptr) add_arguments(plan, *dispatch);
  }
  return plan;
}

void add_late_form(LatePlan& plan, std::span<const Operation> operations) {
  std::vector<LateNodePlan>& nodes = plan.forms.emplace_back();
  if (plan.is_empty()) return;
  for (std::uint32_t i = 0; i < operations.size(); ++i) {
    LateNodePlan node{i, {}, {}};
    if (const auto* dispatch = std::get_if<DispatchOperation>(&operations[i].action)) {
      for (const LateScalarSlot& late : dispatch->late)
        node.scalars.push_back({late.block_offset, *position_of(plan, late.scalar.get())});
      for (const PointerSlot& pointer : dispatch->pointers) {
        if (const auto region = region_at(plan, pointer.target.allocation))
          node.pointers.push_back({pointer.block_offset, *region, pointer.target.offset});
      }
    }
    if (!node.scalars.empty() || !node.pointers.empty()) nodes.push_back(std::move(node));
  }
}

}  // namespace weft
