#include "argument.h"
#include "checked_math.h"
#include "context_state.h"
#include "definition_state.h"
#include "error_context.h"
#include "fragment_state.h"
#include "refusal.h"
#include <weft/error.h>
#include <weft/model.h>
#include <weft/plan/hazard.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <string>
#include <utility>

namespace weft {

namespace {

const std::shared_ptr<const LoadedKernel>& find_kernel(const DefinitionState& definition, KernelId id) {
  if (id.session != definition.session) {
    refuse(fmt::format("The kernel belongs to session {}; this definition comes from session {}.", id.session,
                       definition.session));
  }
  if (id.index >= definition.kernels.size()) {
    refuse(fmt::format("The kernel has index {}; the definition has {} kernels.", id.index, definition.kernels.size()));
  }
  return definition.kernels[id.index];
}

const Allocation& require_region(const DefinitionState& definition, const Region& region) {
  if (region.session != definition.session) {
    refuse(fmt::format("The region belongs to session {}; this definition comes from session {}.", region.session,
                       definition.session));
  }
  if (region.allocation >= definition.allocations.size()) {
    refuse(fmt::format("The region names allocation {}; the definition has {}.", region.allocation,
                       definition.allocations.size()));
  }
  const Allocation& allocation = definition.allocations[region.allocation];
  const auto end = checked_add(region.offset, region.bytes);
  if (!end || *end > allocation.bytes) {
    refuse(fmt::format("The region of {} bytes at byte {} passes the {} bytes of allocation \"{}\".", region.bytes,
                       region.offset, allocation.bytes, allocation.label));
  }
  return allocation;
}

void validate_tensor_region(const DefinitionState& definition, const TensorRegion& tensor) {
  const Allocation& allocation = require_region(definition, tensor);
  if (tensor.desc.is_empty())
    refuse(fmt::format("The descriptor {} of allocation \"{}\" is empty.", to_string(tensor.desc), allocation.label));
  if (tensor.desc.bytes() > tensor.bytes) {
    refuse(fmt::format("The descriptor {} has {} bytes; its region of allocation \"{}\" has {}.",
                       to_string(tensor.desc), tensor.desc.bytes(), allocation.label, tensor.bytes));
  }
  if (allocation.weight != nullptr)
    refuse(fmt::format("The region is of the weight \"{}\"; inputs and outputs are never weights.", allocation.label));
}

Operation validate_fill(const DefinitionState& definition, const Fill& fill) {
  const Allocation& allocation = require_region(definition, fill.region);
  if (allocation.weight != nullptr)
    refuse(fmt::format("The fill targets the weight \"{}\", which is immutable.", allocation.label));
  if (fill.region.bytes == 0) refuse(fmt::format("The fill of allocation \"{}\" is empty.", allocation.label));
  const Region& region = fill.region;
  return {.label = {},
          .action = FillOperation{{region.allocation, region.offset}, region.bytes, fill.value},
          .uses = {{{region.allocation, region.offset, region.offset + region.bytes, Access::write}}, {}},
          .role = {}};
}

Dim3 validate_grid(const Grid& grid, const DeviceLimits& limits) {
  const auto axis = [](const char* name, std::uint64_t value, std::uint32_t limit) {
    if (value > limit) refuse(fmt::format("The grid's {} is {}; the device allows {}.", name, value, limit));
    return static_cast<std::uint32_t>(value);
  };
  return {axis("x", grid.x, limits.max_grid.x), axis("y", grid.y, limits.max_grid.y),
          axis("z", grid.z, limits.max_grid.z)};
}

LaunchConfig evaluate_launch(const KernelSpec& spec, std::span<const std::uint64_t> workload) {
  if (!spec.launch)
    refuse(fmt::format("The kernel \"{}\" has no launch rule; it takes a grid and not a workload.", spec.name()));
  return spec.launch(workload);
}

LaunchConfig launch_of(const KernelSpec& spec, const std::variant<Grid, Workload>& shape) {
  if (const auto* workload = std::get_if<Workload>(&shape)) return evaluate_launch(spec, workload->words);
  return {std::get<Grid>(shape), spec.dynamic_shared_bytes};
}

Operation validate_dispatch(const DefinitionState& definition, const Dispatch& dispatch) {
  const std::shared_ptr<const LoadedKernel>& kernel = find_kernel(definition, dispatch.kernel);
  const DeviceLimits& limits = ContextAccess::state(definition.context)->api().limits();
  for (const auto& [region, written] : bound_regions(kernel->spec, dispatch.arguments)) {
    const Allocation& allocation = require_region(definition, region);
    if (written && allocation.weight != nullptr)
      refuse(fmt::format("The kernel writes the weight \"{}\", which is immutable.", allocation.label));
    if (region.bytes == 0)
      refuse(fmt::format("A region of allocation \"{}\" is bound with 0 bytes.", allocation.label));
  }
  require_signature(kernel->spec, dispatch.arguments);
  const LaunchConfig launch = launch_of(kernel->spec, dispatch.shape);
  if (launch.grid.x == 0 || launch.grid.y == 0 || launch.grid.z == 0) {
    refuse(fmt::format("The grid is ({},{},{}); no axis may be 0.", launch.grid.x, launch.grid.y, launch.grid.z));
  }
  BoundArguments bound = bind_arguments(*kernel, dispatch.arguments);
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
  return {.label = {},
          .action = DispatchOperation{kernel, grid, static_cast<std::uint32_t>(launch.dynamic_shared_bytes),
                                      std::move(bound.parameters), std::move(bound.pointers)},
          .uses = {std::move(bound.uses), {}},
          .role = {}};
}

std::string describe(const DefinitionState& definition, const Command& command, std::size_t position) {
  std::string text = fmt::format("validating commands[{}], ", position);
  if (const auto* dispatch = std::get_if<Dispatch>(&command.action())) {
    text += "dispatch";
    const KernelId id = dispatch->kernel;
    if (id.session == definition.session && id.index < definition.kernels.size())
      text += fmt::format(" of \"{}\"", definition.kernels[id.index]->spec.name());
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

Operation validate_command(const DefinitionState& definition, const Command& command, std::size_t position) {
  return in_context([&] { return describe(definition, command, position); },
                    [&] {
                      const auto* fill = std::get_if<Fill>(&command.action());
                      Operation operation = fill != nullptr
                                                ? validate_fill(definition, *fill)
                                                : validate_dispatch(definition, std::get<Dispatch>(command.action()));
                      validate_after(command.after(), position);
                      operation.label = command.label();
                      operation.uses.after = command.after();
                      return operation;
                    });
}

std::vector<std::uint64_t> used_extents(const FragmentState& fragment) {
  std::vector<std::uint64_t> extents(fragment.allocations.size(), 0);
  const auto use = [&](std::uint32_t allocation, std::uint64_t end) {
    extents[allocation] = std::max(extents[allocation], end);
  };
  for (const Operation& operation : fragment.operations) {
    for (const ByteUse& bytes : operation.uses.uses) use(bytes.allocation, bytes.end);
  }
  for (const auto* tensors : {&fragment.inputs, &fragment.outputs}) {
    for (const TensorRegion& tensor : *tensors) use(tensor.allocation, tensor.offset + tensor.desc.bytes());
  }
  return extents;
}

std::shared_ptr<const FragmentState> validate_fragment(const DefinitionState& definition, FragmentOptions options) {
  const auto validate_all = [&](const char* what, const std::vector<TensorRegion>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      in_context([&] { return fmt::format("validating {}[{}]", what, i); },
                 [&] { validate_tensor_region(definition, tensors[i]); });
    }
  };
  validate_all("inputs", options.inputs);
  validate_all("outputs", options.outputs);
  FragmentState fragment{definition.context,        std::move(options.label),  definition.allocations, {}, {},
                         std::move(options.inputs), std::move(options.outputs)};
  fragment.operations.reserve(options.commands.size());
  for (std::size_t i = 0; i < options.commands.size(); ++i)
    fragment.operations.push_back(validate_command(definition, options.commands[i], i));
  fragment.extents = used_extents(fragment);
  return std::make_shared<const FragmentState>(std::move(fragment));
}

}  // namespace

ModelDefinition::ModelDefinition(std::shared_ptr<const DefinitionState> state) noexcept : state_(std::move(state)) {}

const Context& ModelDefinition::context() const noexcept { return state_->context; }

std::uint64_t ModelDefinition::weight_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Allocation& allocation : state_->allocations) {
    if (allocation.weight != nullptr) bytes += allocation.bytes;
  }
  return bytes;
}

LaunchConfig ModelDefinition::launch_config(KernelId kernel, std::span<const std::uint64_t> workload) const {
  return evaluate_launch(find_kernel(*state_, kernel)->spec, workload);
}

ModelFragment ModelDefinition::fragment(Trusted, FragmentOptions options) const {
  if (options.label.empty()) return ModelFragment(validate_fragment(*state_, std::move(options)));
  const std::string label = options.label;
  return in_context([&] { return fmt::format("validating fragment \"{}\"", label); },
                    [&] { return ModelFragment(validate_fragment(*state_, std::move(options))); });
}

ModelFragment::ModelFragment(std::shared_ptr<const FragmentState> state) noexcept : state_(std::move(state)) {}

const Context& ModelFragment::context() const noexcept { return state_->context; }

}  // namespace weft
