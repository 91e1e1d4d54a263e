// What requests bring to a slot late.

#include "device_tensor_access.h"
#include "error_context.h"
#include "overlap.h"
#include "refusal.h"
#include "slot.h"
#include <weft/tensor.h>

#include <spdlog/fmt/fmt.h>

#include <cstdint>
#include <string>
#include <utility>

namespace weft {

namespace {

/// Memory that a late region is bound to, as an address range.
struct Candidate {
  DeviceAddress address = 0;
  std::uint64_t bytes = 0;

  /// `what` names the other memory; it is called for a refusal alone.
  template <class What>
  void require_apart(DeviceAddress other, std::uint64_t other_bytes, const What& what) const {
    if (!overlap(address, bytes, other, other_bytes)) return;
    refuse(fmt::format("The tensor shares bytes with {}; the commands' order was inferred for memory apart.", what()));
  }
};

void require_described(const LateRegionDeclaration& region, const TensorDesc& desc) {
  if (region.desc && !(desc == *region.desc)) {
    refuse(fmt::format("The tensor is {}; the late region is {}.", to_string(desc), to_string(*region.desc)));
  }
  if (!region.desc && desc.bytes() != region.region.bytes) {
    refuse(fmt::format("The tensor {} has {} bytes; the late region has {}.", to_string(desc), desc.bytes(),
                       region.region.bytes));
  }
  if (!desc.is_contiguous()) refuse(fmt::format("The tensor is not contiguous: {}.", to_string(desc)));
}

}  // namespace

LateArguments& Slot::require_late() const {
  if (late_ == nullptr) refuse("No command of the model takes anything late.");
  return *late_;
}

void Slot::set_late(LateScalarId scalar, std::span<const std::byte> value) { require_late().set(scalar, value); }

void Slot::bind_late(const Region& region, const DeviceTensor& tensor) {
  LateArguments& late = require_late();
  const std::size_t index = late.find(region);
  const LateRegionPlan& plan = plan_->late.regions[index];
  in_context([&] { return fmt::format("binding the late region \"{}\"", plan.declaration->label); },
             [&] {
               if (DeviceTensorAccess::is_in_graph(tensor))
                 refuse("The tensor is of an unprepared graph; it has no bytes yet.");
               require_described(*plan.declaration, tensor.desc());
               const std::shared_ptr<TrackedMemory>& memory = DeviceTensorAccess::memory(tensor);
               if (&memory->home() != &context_) refuse("The tensor belongs to another context.");
               const std::uint64_t offset = DeviceTensorAccess::offset(tensor);
               require_late_place(index, memory->address() + offset);
               late.bind(index, {memory, offset, tensor.completion()});
             });
}

void Slot::require_late_place(std::size_t index, DeviceAddress address) const {
  const LateRegionPlan& plan = plan_->late.regions[index];
  if (address % plan.alignment != 0) {
    refuse(fmt::format("The tensor stands {} bytes behind a multiple of {}; the kernels need it at one.",
                       address % plan.alignment, plan.alignment));
  }
  const Candidate candidate{address, plan.declaration->region.bytes};
  for (const DeviceMemory& own : *memory_)
    candidate.require_apart(own.address(), own.bytes(), [] { return "memory of the slot"; });
  const auto pinned = [] { return "pinned memory of the slot"; };
  if (pinned_.page != nullptr) candidate.require_apart(pinned_.device(), plan_->pinned.reserved, pinned);
  candidate.require_apart(word_.device(), kWordBytes, pinned);
  for (const Allocation& allocation : plan_->allocations) {
    if (allocation.weight == nullptr) continue;
    candidate.require_apart(allocation.weight->address(), allocation.weight->bytes(),
                            [&] { return fmt::format("the weight \"{}\"", allocation.label); });
  }
  for (const TrackedUse& use : plan_->uses) {
    candidate.require_apart(use.memory->address() + use.begin, use.end - use.begin, [&] {
      return fmt::format("the {} \"{}\" of the model", use.memory->is_state() ? "state" : "memory",
                         use.memory->label());
    });
  }
  const auto bound = late_->regions();
  for (std::size_t i = 0; i < bound.size(); ++i) {
    if (i == index || bound[i].memory == nullptr) continue;
    const LateRegionDeclaration& other = *plan_->late.regions[i].declaration;
    candidate.require_apart(bound[i].address(), other.region.bytes,
                            [&] { return fmt::format("what the late region \"{}\" is bound to", other.label); });
  }
}

void Slot::forget_late() noexcept {
  if (late_ != nullptr) late_->reset();
}

void Slot::use_late() {
  late_->require_complete();
  const auto bound = late_->regions();
  for (std::size_t i = 0; i < bound.size(); ++i) {
    const auto& [memory, offset, completion] = bound[i];
    if (completion.poll() != CompletionStatus::done) producers_.push_back(completion);
    for (const LateRegionPlan::Use& use : plan_->late.regions[i].uses)
      uses_.push_back({memory.get(), offset + use.begin, offset + use.end, use.access});
  }
}

void Slot::patch_late(std::size_t form) {
  lane_->log()->patched(
      late_->patch(context_.api(), form, executables_[form].get(), plan_->forms[form].graph, graphs_[form]->nodes()));
}

std::vector<std::shared_ptr<TrackedMemory>> Slot::late_memory() const {
  std::vector<std::shared_ptr<TrackedMemory>> memory;
  if (late_ == nullptr) return memory;
  for (const LateArguments::BoundRegion& bound : late_->regions()) memory.push_back(bound.memory);
  return memory;
}

}  // namespace weft
