#include "late_arguments.h"

#include "error_context.h"
#include "graph_builder.h"
#include "refusal.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <variant>

namespace weft {

namespace {

/// Writes `bytes` to `place`; whether that changes it.
bool replace(std::byte* place, const void* bytes, std::size_t size) noexcept {
  if (std::memcmp(place, bytes, size) == 0) return false;
  std::memcpy(place, bytes, size);
  return true;
}

std::string name_of(const std::string& label, std::size_t index) {
  return label.empty() ? fmt::format("{}", index) : fmt::format("\"{}\"", label);
}

}  // namespace

LateArguments::LateArguments(const LatePlan& plan) : plan_(plan), regions_(plan.regions.size()) {
  for (const auto& scalar : plan.scalars) {
    scalars_.push_back({values_.size(), false});
    values_.resize(values_.size() + scalar->value.size());
  }
  reset();
}

void LateArguments::add_executable(const GraphPlan& graph, std::span<const DeviceAddress> addresses) {
  std::vector<PatchedNode>& nodes = executables_.emplace_back();
  for (const LateNodePlan& node : plan_.forms[executables_.size() - 1]) {
    nodes.push_back({make_node(graph.operations[node.operation], addresses), false});
  }
}

void LateArguments::set(LateScalarId scalar, std::span<const std::byte> value) {
  const auto found = std::ranges::find(plan_.scalars, scalar, [](const auto& known) { return known->id; });
  if (found == plan_.scalars.end()) {
    refuse(
        fmt::format("The late scalar {} of session {} is in no command of the model.", scalar.index, scalar.session));
  }
  if (value.size() != (*found)->value.size()) {
    refuse(fmt::format("The late scalar {} has {} bytes; {} are given.", name_of((*found)->label, scalar.index),
                       (*found)->value.size(), value.size()));
  }
  Scalar& state = scalars_[static_cast<std::size_t>(found - plan_.scalars.begin())];
  std::memcpy(&values_[state.offset], value.data(), value.size());
  state.is_set = true;
}

std::size_t LateArguments::find(const Region& region) const {
  const auto is_of = [&](const LateRegionPlan& known) {
    const Region& all = known.declaration->region;
    return all.session == region.session && all.allocation == region.allocation;
  };
  const auto found = std::ranges::find_if(plan_.regions, is_of);
  if (found == plan_.regions.end()) {
    refuse(fmt::format("The region of allocation {} of session {} is no late region of the model's commands.",
                       region.allocation, region.session));
  }
  const LateRegionDeclaration& declaration = *found->declaration;
  if (declaration.region != region) {
    refuse(fmt::format("The region is the bytes {} to {} of the late region {}; all of its {} bytes are bound at once.",
                       region.offset, region.offset + region.bytes, name_of(declaration.label, region.allocation),
                       declaration.region.bytes));
  }
  return static_cast<std::size_t>(found - plan_.regions.begin());
}

void LateArguments::reset() noexcept {
  for (std::size_t i = 0; i < scalars_.size(); ++i) {
    const std::vector<std::byte>& own = plan_.scalars[i]->value;
    std::memcpy(&values_[scalars_[i].offset], own.data(), own.size());
    scalars_[i].is_set = plan_.scalars[i]->has_value;
  }
  for (BoundRegion& region : regions_) region = {};
}

void LateArguments::require_complete() const {
  for (std::size_t i = 0; i < scalars_.size(); ++i) {
    if (scalars_[i].is_set) continue;
    const LateScalarDeclaration& scalar = *plan_.scalars[i];
    refuse(fmt::format("The late scalar {} is not set, and has no value of its own.",
                       name_of(scalar.label, scalar.id.index)));
  }
  for (std::size_t i = 0; i < regions_.size(); ++i) {
    if (regions_[i].memory != nullptr) continue;
    const LateRegionDeclaration& region = *plan_.regions[i].declaration;
    refuse(fmt::format("The late region {} is not bound.", name_of(region.label, region.region.allocation)));
  }
}

std::span<const std::byte> LateArguments::value(std::size_t scalar) const noexcept {
  return std::span(values_).subspan(scalars_[scalar].offset, plan_.scalars[scalar]->value.size());
}

bool LateArguments::update(const LateNodePlan& plan, Node& node) const noexcept {
  const auto address = [&](const LateNodePlan::PointerPlace& place) {
    return regions_[place.region].address() + place.offset;
  };
  std::vector<std::byte>& block = std::get<KernelNode>(node).parameters;
  bool changed = false;
  for (const LateNodePlan::ScalarPlace& place : plan.scalars) {
    const std::span<const std::byte> bytes = value(place.scalar);
    changed = replace(&block[place.block_offset], bytes.data(), bytes.size()) || changed;
  }
  for (const LateNodePlan::PointerPlace& place : plan.pointers) {
    const DeviceAddress pointer = address(place);
    changed = replace(&block[place.block_offset], &pointer, sizeof(pointer)) || changed;
  }
  return changed;
}

std::uint32_t LateArguments::patch(DeviceApi& api, std::size_t form, ExecutableHandle executable,
                                   const GraphPlan& graph, std::span<const NodeHandle> nodes) {
  const std::vector<LateNodePlan>& plans = plan_.forms[form];
  std::uint32_t patched = 0;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    PatchedNode& patch = executables_[form][i];
    if (!update(plans[i], patch.node) && !patch.is_stale) continue;
    patch.is_stale = true;
    const std::uint32_t operation = plans[i].operation;
    in_context(
        [&] {
          return fmt::format("setting the late arguments of node {} (\"{}\") of graph \"{}\"", operation,
                             graph.operations[operation].label, graph.title);
        },
        [&] {
          check(api.set_executable_node(executable, nodes[operation], patch.node), "set a node of an executable");
        });
    patch.is_stale = false;
    patched_.add(1);
    ++patched;
  }
  return patched;
}

GraphPlan LateArguments::complete(GraphPlan graph, std::size_t form) const {
  for (const LateNodePlan& node : plan_.forms[form]) {
    auto& action = graph.operations[node.operation].action;
    for (const LateNodePlan::ScalarPlace& place : node.scalars) {
      const std::span<const std::byte> bytes = value(place.scalar);
      std::memcpy(&std::get<DispatchOperation>(action).parameters[place.block_offset], bytes.data(), bytes.size());
    }
  }
  return graph;
}

void LateArguments::place(std::span<DeviceAddress> addresses) const noexcept {
  for (std::size_t i = 0; i < regions_.size(); ++i) addresses[plan_.regions[i].allocation] = regions_[i].address();
}

}  // namespace weft
