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
#include <string>
#include <utility>

namespace weft {

namespace {

ValidationScope scope_of(const DefinitionState& definition) {
  const HandleOwner owner{definition.session, "definition", "this definition comes from session"};
  return {owner, definition.allocations, owner, definition.kernels,
          ContextAccess::state(definition.context)->api().limits()};
}

void validate_tensor_region(const ValidationScope& scope, const TensorRegion& tensor) {
  const Allocation& allocation = require_region(scope, tensor);
  if (tensor.desc.is_empty())
    refuse(fmt::format("The descriptor {} of allocation \"{}\" is empty.", to_string(tensor.desc), allocation.label));
  if (tensor.desc.bytes() > tensor.bytes) {
    refuse(fmt::format("The descriptor {} has {} bytes; its region of allocation \"{}\" has {}.",
                       to_string(tensor.desc), tensor.desc.bytes(), allocation.label, tensor.bytes));
  }
  if (allocation.weight != nullptr)
    refuse(fmt::format("The region is of the weight \"{}\"; inputs and outputs are never weights.", allocation.label));
  const std::uint64_t element = size_of(tensor.desc.dtype());
  if (tensor.offset % element != 0) {
    refuse(fmt::format("The region starts at byte {} of allocation \"{}\"; elements of {} start at multiples of {}.",
                       tensor.offset, allocation.label, to_string(tensor.desc.dtype()), element));
  }
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
