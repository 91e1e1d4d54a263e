#include "slot_pool.h"

#include "checked_math.h"
#include "error_context.h"
#include "refusal.h"
#include "slot_plan.h"
#include "stamping.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

namespace {

// So that a program can be run under a memory checker as it is.
bool environment_separates_allocations() {
  const char* value = std::getenv("WEFT_SEPARATE_ALLOCATIONS");
  return value != nullptr && std::string_view(value) == "1";
}

std::uint64_t pinned_bytes(const std::vector<std::shared_ptr<const SlotPlan>>& plans) {
  std::uint64_t total = 0;
  for (const auto& plan : plans) {
    const auto sum = checked_add(total, plan->pinned.reserved);
    if (!sum) refuse("The staging of all slots is beyond 2^64 bytes.");
    total = *sum;
  }
  return total;
}

std::size_t index_of(const char* what, const std::vector<Region>& regions, const Region& region) {
  const auto count = std::ranges::count(regions, region);
  if (count == 0) {
    refuse(
        regions.empty()
            ? fmt::format("The pool has no {} regions; tensors recorded into a graph are named by their index.", what)
            : fmt::format("The region is none of the fragment's {}s.", what));
  }
  if (count > 1)
    refuse(fmt::format("The region is listed as {} {}s; it takes an index to tell them apart.", count, what));
  return static_cast<std::size_t>(std::ranges::find(regions, region) - regions.begin());
}

}  // namespace

SlotPool::SlotPool(const Context& context, const PrepareOptions& options,
                   std::vector<std::shared_ptr<const SlotPlan>> plans, std::vector<Region> input_regions,
                   std::vector<Region> output_regions)
    : context_(context),
      options_(options),
      input_regions_(std::move(input_regions)),
      output_regions_(std::move(output_regions)) {
  options_.separate_allocations = options_.separate_allocations || environment_separates_allocations();
  ContextState& state = *ContextAccess::state(context_);
  state.reap();
  const std::uint64_t staging = pinned_bytes(plans);
  const auto words =
      std::make_shared<const PinnedBuffer>(state.domain(), kWordBytes * plans.size(), "the completion words");
  PinnedPart pinned;
  if (staging > 0) pinned.page = std::make_shared<const PinnedBuffer>(state.domain(), staging, "staging");
  slots_.reserve(plans.size());
  for (const auto& plan : plans) {
    in_context([&] { return fmt::format("preparing slot {} of {}", slots_.size(), plans.size()); },
               [&] {
                 const PinnedPart word{words, kWordBytes * slots_.size()};
                 slots_.push_back(std::make_unique<Slot>(state, plan, pinned, word, options_));
               });
    pinned.offset += plan->pinned.reserved;
  }
  odd_slots_ = make_executables(state.domain()->api(), slots_);
  for (const auto& slot : slots_) slot->settle();
}

std::uint32_t SlotPool::try_reserve() {
  const std::uint32_t count = size();
  const std::uint32_t first = next_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t index = first + i < count ? first + i : first + i - count;
    if (slots_[index]->try_reserve()) {
      next_.store(index + 1 == count ? 0 : index + 1, std::memory_order_relaxed);
      return index;
    }
  }
  check(ContextAccess::state(context_)->api().health(), "run requests");
  return count;
}

void SlotPool::require_progress() const {
  for (const auto& slot : slots_) slot->lane()->require_progress(slot->lane()->launched());
}

std::size_t SlotPool::find_form(Side inputs, std::optional<Side> outputs) const {
  const SlotPlan& plan = slots_.front()->plan();
  for (std::size_t i = 0; i < plan.forms.size(); ++i) {
    const RequestForm& form = plan.forms[i].form;
    // Where there are no tensors, it does not matter where they are.
    if ((form.inputs == inputs || plan.inputs.empty()) &&
        (!outputs || form.outputs == *outputs || plan.outputs.empty()))
      return i;
  }
  const auto name = [](Side side) { return side == Side::host ? "host" : "device"; };
  refuse(fmt::format("The model is not prepared for {} inputs{}; PrepareOptions::forms lists what it is prepared for.",
                     name(inputs), outputs ? fmt::format(" with {} outputs", name(*outputs)) : ""));
}

std::size_t SlotPool::input_index(const Region& region) const { return index_of("input", input_regions_, region); }
std::size_t SlotPool::output_index(const Region& region) const { return index_of("output", output_regions_, region); }

}  // namespace weft
