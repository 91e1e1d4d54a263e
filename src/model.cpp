#include "buffer_storage.h"
#include "call_recorder.h"
#include "context_state.h"
#include "definition_state.h"
#include "error_context.h"
#include "fragment_state.h"
#include "refusal.h"
#include "validation.h"
#include <weft/error.h>
#include <weft/model.h>
#include <weft/plan/hazard.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace weft {

namespace {

ValidationScope scope_of(const DefinitionState& definition) {
  const HandleOwner owner{definition.session, "definition", "this definition comes from session"};
  return {owner,
          definition.allocations,
          owner,
          definition.kernels,
          ContextAccess::state(definition.context)->api().limits(),
          false,
          definition.late_scalars};
}

void validate_tensor_region(const ValidationScope& scope, const TensorRegion& tensor) {
  const Allocation& allocation = require_region(scope, tensor);
  if (tensor.desc.is_empty())
    refuse(fmt::format("The descriptor {} of allocation \"{}\" is empty.", to_string(tensor.desc), allocation.label));
  if (tensor.desc.bytes() > tensor.bytes) {
    refuse(fmt::format("The descriptor {} has {} bytes; its region of allocation \"{}\" has {}.",
                       to_string(tensor.desc), tensor.desc.bytes(), allocation.label, tensor.bytes));
  }
  require_not_late(allocation, "inputs and outputs are memory of each slot's own");
  if (allocation.weight != nullptr)
    refuse(fmt::format("The region is of the weight \"{}\"; inputs and outputs are never weights.", allocation.label));
  if (allocation.memory != nullptr) {
    refuse(
        fmt::format("The region is of the state \"{}\", which all slots share; an input or output is memory of each "
                    "slot's own.",
                    allocation.label));
  }
  const std::uint64_t element = size_of(tensor.desc.dtype());
  if (tensor.offset % element != 0) {
    refuse(fmt::format("The region starts at byte {} of allocation \"{}\"; elements of {} start at multiples of {}.",
                       tensor.offset, allocation.label, to_string(tensor.desc.dtype()), element));
  }
}

const std::shared_ptr<TrackedMemory>& require_state(const DefinitionState& definition, const Region& region) {
  const Allocation& allocation = require_region(scope_of(definition), region);
  if (allocation.memory == nullptr) {
    refuse(fmt::format("The allocation \"{}\" is {}; state is what ModelSession::state makes.", allocation.label,
                       allocation.weight != nullptr ? "a weight"
                       : allocation.late != nullptr ? "a late region"
                                                    : "scratch"));
  }
  if (region.bytes == 0) refuse(fmt::format("The region of the state \"{}\" is empty.", allocation.label));
  return allocation.memory;
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
  const ValidationScope scope = scope_of(definition);
  const auto validate_all = [&](const char* what, const std::vector<TensorRegion>& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      in_context([&] { return fmt::format("validating {}[{}]", what, i); },
                 [&] { validate_tensor_region(scope, tensors[i]); });
    }
  };
  validate_all("inputs", options.inputs);
  validate_all("outputs", options.outputs);
  FragmentState fragment{definition.context,
                         std::move(options.label),
                         definition.allocations,
                         {},
                         validate_commands(scope, options.commands),
                         std::move(options.inputs),
                         std::move(options.outputs)};
  add_workspaces(fragment.operations, fragment.allocations);
  fragment.extents = used_extents(fragment);
  fragment.session = definition.session;
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

std::uint64_t ModelDefinition::state_bytes() const noexcept {
  std::uint64_t bytes = 0;
  for (const Allocation& allocation : state_->allocations) {
    if (allocation.memory != nullptr) bytes += allocation.bytes;
  }
  return bytes;
}

Buffer ModelDefinition::state(const Region& region) const {
  return BufferAccess::make(require_state(*state_, region)).slice(region.offset, region.bytes);
}

DeviceTensor ModelDefinition::state(const TensorRegion& region) const {
  const Buffer buffer = state(static_cast<const Region&>(region));
  if (region.desc.is_empty()) refuse(fmt::format("The state's descriptor {} is empty.", to_string(region.desc)));
  return buffer.tensor(region.desc);
}

Completion ModelDefinition::reset_state(const Region& region) const {
  const std::shared_ptr<TrackedMemory>& memory = require_state(*state_, region);
  const std::array uses{TrackedUse{memory.get(), region.offset, region.offset + region.bytes, Access::write}};
  const std::array<Transfers::Step, 1> steps{FillNode{memory->address() + region.offset, region.bytes, 0}};
  Transfers& transfers = memory->home().transfers();
  return in_context([&] { return fmt::format("resetting the state \"{}\"", memory->label()); },
                    [&] {
                      return transfers.submit(transfers.lane(), {.uses = uses, .producers = {}}, steps, {&memory, 1});
                    });
}

LaunchConfig ModelDefinition::launch_config(KernelId kernel, std::span<const std::uint64_t> workload) const {
  return evaluate_launch(find_kernel(scope_of(*state_), kernel)->spec, workload);
}

ModelFragment ModelDefinition::fragment(Trusted, FragmentOptions options) const {
  if (options.label.empty()) return ModelFragment(validate_fragment(*state_, std::move(options)));
  const std::string label = options.label;
  return in_context([&] { return fmt::format("validating fragment \"{}\"", label); },
                    [&] { return ModelFragment(validate_fragment(*state_, std::move(options))); });
}

PreparedModel ModelDefinition::prepare(Trusted, FragmentOptions fragment_options, PrepareOptions options) const {
  return fragment(trusted, std::move(fragment_options)).prepare(std::move(options));
}

ModelFragment::ModelFragment(std::shared_ptr<const FragmentState> state) noexcept : state_(std::move(state)) {}

ModelFragment ModelFragment::reuse_private_scratch(Trusted) const {
  FragmentState reusing = *state_;
  reusing.reuses_scratch = true;
  return ModelFragment(std::make_shared<const FragmentState>(std::move(reusing)));
}

const Context& ModelFragment::context() const noexcept { return state_->context; }

}  // namespace weft
