#include "validation.h"

#include "argument.h"
#include "checked_math.h"
#include "error_context.h"
#include "overloaded.h"
#include "refusal.h"
#include "unique_id.h"
#include <weft/plan/hazard.h>

#include <spdlog/fmt/fmt.h>

#include <string>
#include <utility>
#include <variant>

namespace weft {

namespace {

bool is_immutable(const ValidationScope& scope, const Allocation& allocation) {
  return allocation.weight != nullptr && !scope.weights_are_writable;
}

Dim3 validate_grid(const Grid& grid, const DeviceLimits& limits) {
  const auto axis = [](const char* name, std::uint64_t value, std::uint32_t limit) {
    if (value > limit) refuse(fmt::format("The grid's {} is {}; the device allows {}.", name, value, limit));
    return static_cast<std::uint32_t>(value);
  };
  return {axis("x", grid.x, limits.max_grid.x), axis("y", grid.y, limits.max_grid.y),
          axis("z", grid.z, limits.max_grid.z)};
}

LaunchConfig launch_of(const KernelSpec& spec, const std::variant<Grid, Workload>& shape) {
  if (const auto* workload = std::get_if<Workload>(&shape)) return evaluate_launch(spec, workload->words);
  return {std::get<Grid>(shape), spec.dynamic_shared_bytes};
}

void validate_bound_region(const ValidationScope& scope, const BoundRegion& bound, const char* who) {
  const Allocation& allocation = require_region(scope, bound.region);
  if (bound.written && is_immutable(scope, allocation))
    refuse(fmt::format("The {} writes the weight \"{}\", which is immutable.", who, allocation.label));
  if (bound.region.bytes == 0)
    refuse(fmt::format("A region of allocation \"{}\" is bound with 0 bytes.", allocation.label));
}

std::string describe(const ValidationScope& scope, const Command& command, std::size_t position) {
  std::string text = fmt::format("validating commands[{}], ", position);
  if (const auto* dispatch = std::get_if<Dispatch>(&command.action())) {
    text += "dispatch";
    const KernelId id = dispatch->kernel;
    if (id.session == scope.kernels_of.id && id.index < scope.kernels.size())
      text += fmt::format(" of \"{}\"", scope.kernels[id.index]->spec.name());
  } else if (const auto* captured = std::get_if<Captured>(&command.action())) {
    text += fmt::format("call \"{}\"", captured->name);
  } else {
    text += "fill";
  }
  if (!command.label().empty()) text += fmt::format(" labelled \"{}\"", command.label());
  return text;
}

void validate_after(const std::vector<std::uint32_t>& after, std::size_t position) {
  for (const std::uint32_t earlier : after) {
    if (earlier >= position)
      refuse(
          fmt::format("The command states that it follows commands[{}], which is not earlier than its own position {}.",
                      earlier, position));
  }
}

void require_owner(const HandleOwner& owner, const char* what, std::uint64_t session) {
  if (session != owner.id)
    refuse(fmt::format("The {} belongs to session {}; {} {}.", what, session, owner.identity, owner.id));
}

}  // namespace

const std::shared_ptr<const LoadedKernel>& find_kernel(const ValidationScope& scope, KernelId id) {
  const HandleOwner& owner = scope.kernels_of;
  require_owner(owner, "kernel", id.session);
  if (id.index >= scope.kernels.size()) {
    refuse(fmt::format("The kernel has index {}; the {} has {} kernels.", id.index, owner.noun, scope.kernels.size()));
  }
  return scope.kernels[id.index];
}

void require_late_scalar(const ValidationScope& scope, LateScalarId id) {
  const HandleOwner& owner = scope.kernels_of;
  require_owner(owner, "late scalar", id.session);
  if (id.index >= scope.late_scalars.size()) {
    refuse(
        fmt::format("The late scalar has index {}; the {} has {}.", id.index, owner.noun, scope.late_scalars.size()));
  }
}

void require_not_late(const Allocation& allocation, std::string_view why) {
  if (allocation.late != nullptr)
    refuse(fmt::format("The region is of \"{}\", which each request brings; {}.", allocation.label, why));
}

const Allocation& require_region(const ValidationScope& scope, const Region& region) {
  const HandleOwner& owner = scope.regions_of;
  require_owner(owner, "region", region.session);
  if (region.allocation >= scope.allocations.size()) {
    refuse(fmt::format("The region names allocation {}; the {} has {}.", region.allocation, owner.noun,
                       scope.allocations.size()));
  }
  const Allocation& allocation = scope.allocations[region.allocation];
  const auto end = checked_add(region.offset, region.bytes);
  if (!end || *end > allocation.bytes) {
    refuse(fmt::format("The region of {} bytes at byte {} passes the {} bytes of allocation \"{}\".", region.bytes,
                       region.offset, allocation.bytes, allocation.label));
  }
  return allocation;
}

Operation validate_fill(const ValidationScope& scope, const Fill& fill) {
  const Allocation& allocation = require_region(scope, fill.region);
  if (is_immutable(scope, allocation))
    refuse(fmt::format("The fill targets the weight \"{}\", which is immutable.", allocation.label));
  if (fill.region.bytes == 0) refuse(fmt::format("The fill of allocation \"{}\" is empty.", allocation.label));
  const Region& region = fill.region;
  return {.label = {},
          .action = FillOperation{{region.allocation, region.offset}, region.bytes, fill.value},
          .uses = {{{region.allocation, region.offset, region.offset + region.bytes, Access::write}}, {}},
          .role = {}};
}

LaunchConfig evaluate_launch(const KernelSpec& spec, std::span<const std::uint64_t> workload) {
  if (!spec.launch)
    refuse(fmt::format("The kernel \"{}\" has no launch rule; it takes a grid and not a workload.", spec.name()));
  return spec.launch(workload);
}

Operation validate_dispatch(const ValidationScope& scope, const Dispatch& dispatch) {
  const std::shared_ptr<const LoadedKernel>& kernel = find_kernel(scope, dispatch.kernel);
  const DeviceLimits& limits = scope.limits;
  for (const BoundRegion& bound : bound_regions(kernel->spec, dispatch.arguments)) {
    in_context([&] { return "binding " + describe(kernel->spec, bound); },
               [&] { validate_bound_region(scope, bound, "kernel"); });
  }
  for (const Argument& argument : dispatch.arguments) {
    if (const auto* id = std::get_if<LateScalarId>(&argument.value)) require_late_scalar(scope, *id);
  }
  require_signature(kernel->spec, dispatch.arguments);
  const LaunchConfig launch = launch_of(kernel->spec, dispatch.shape);
  if (launch.grid.x == 0 || launch.grid.y == 0 || launch.grid.z == 0) {
    refuse(fmt::format("The grid is ({},{},{}); no axis may be 0.", launch.grid.x, launch.grid.y, launch.grid.z));
  }
  BoundArguments bound = bind_arguments(*kernel, dispatch.arguments, scope.late_scalars);
  const Dim3 grid = validate_grid(launch.grid, limits);
  const std::uint64_t static_shared = kernel->compiled.static_shared_bytes;
  if (static_shared > limits.max_shared_bytes ||
      launch.dynamic_shared_bytes > limits.max_shared_bytes - static_shared) {
    refuse(fmt::format(
        "The launch needs {} bytes of dynamic shared memory beside {} static ones; the device allows {} together.",
        launch.dynamic_shared_bytes, kernel->compiled.static_shared_bytes, limits.max_shared_bytes));
  }
  if (kernel->compiled.parameter_bytes() > limits.max_parameter_bytes) {
    refuse(fmt::format("The parameters have {} bytes; the device takes {}.", kernel->compiled.parameter_bytes(),
                       limits.max_parameter_bytes));
  }
  require_launchable(*kernel, grid, static_cast<std::uint32_t>(launch.dynamic_shared_bytes));
  return {.label = {},
          .action = DispatchOperation{kernel, grid, static_cast<std::uint32_t>(launch.dynamic_shared_bytes),
                                      std::move(bound.parameters), std::move(bound.pointers), std::move(bound.late)},
          .uses = {std::move(bound.uses), {}},
          .role = {}};
}

Operation validate_captured(const ValidationScope& scope, const Captured& captured) {
  if (!captured.enqueue) refuse("The call has no function that enqueues its work.");
  CapturedOperation operation{
      .call = std::make_shared<const Captured>(captured), .id = next_unique_id(), .bindings = {}, .workspace = {}};
  std::vector<ByteUse> uses;
  for (std::size_t i = 0; i < captured.bindings.size(); ++i) {
    const auto& [region, access] = captured.bindings[i];
    in_context([&] { return fmt::format("binding argument {}", i); },
               [&, access = access] {
                 if (!access) refuse("The binding does not say what the call does to it: read, write or both.");
                 validate_bound_region(scope, {region, writes(*access), i}, "call");
                 require_not_late(scope.allocations[region.allocation],
                                  "a captured call's addresses are recorded once");
                 uses.push_back({region.allocation, region.offset, region.offset + region.bytes, *access});
               });
    operation.bindings.push_back({region.allocation, region.offset});
  }
  return {.label = {}, .action = std::move(operation), .uses = {std::move(uses), {}}, .role = {}};
}

namespace {

Operation validate_action(const ValidationScope& scope, const Command& command) {
  return std::visit(Overloaded{[&](const Fill& fill) { return validate_fill(scope, fill); },
                               [&](const Dispatch& dispatch) { return validate_dispatch(scope, dispatch); },
                               [&](const Captured& captured) { return validate_captured(scope, captured); }},
                    command.action());
}

}  // namespace

Operation validate_command(const ValidationScope& scope, const Command& command, std::size_t position) {
  return in_context([&] { return describe(scope, command, position); },
                    [&] {
                      Operation operation = validate_action(scope, command);
                      validate_after(command.after(), position);
                      operation.label = command.label();
                      operation.uses.after = command.after();
                      return operation;
                    });
}

std::vector<Operation> validate_commands(const ValidationScope& scope, std::span<const Command> commands) {
  std::vector<Operation> operations;
  operations.reserve(commands.size());
  for (std::size_t i = 0; i < commands.size(); ++i) operations.push_back(validate_command(scope, commands[i], i));
  return operations;
}

}  // namespace weft
