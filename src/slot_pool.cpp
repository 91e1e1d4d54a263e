#include "slot_pool.h"

#include "checked_math.h"
#include "error_context.h"
#include "slot_plan.h"
#include <weft/error.h>
#include <weft/graph.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

namespace {

[[noreturn]] void refuse(std::string sentence) { throw Error(ErrorCode::invalid, std::move(sentence)); }

void require_same(const char* what, const std::vector<TensorDesc>& first, const std::vector<TensorDesc>& other) {
  if (first.size() != other.size())
    refuse(fmt::format("The slot has {} {}; slot 0 has {}.", other.size(), what, first.size()));
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (!(first[i] == other[i]))
      refuse(fmt::format("The {}[{}] of the slot is {}; that of slot 0 is {}.", what, i, to_string(other[i]),
                         to_string(first[i])));
  }
}

std::vector<std::shared_ptr<const SlotPlan>> plan_slots(Context& context,
                                                        const std::function<InferenceGraph(Context&)>& factory,
                                                        const PrepareOptions& options) {
  std::vector<std::shared_ptr<const SlotPlan>> plans;
  for (std::uint32_t i = 0; i < options.slots; ++i) {
    in_context([&] { return fmt::format("preparing slot {} of {}", i, options.slots); },
               [&] {
                 plans.push_back(std::make_shared<const SlotPlan>(
                     plan_slot(*ContextAccess::state(context), factory(context), options)));
                 require_same("inputs", plans.front()->inputs, plans.back()->inputs);
                 require_same("outputs", plans.front()->outputs, plans.back()->outputs);
               });
  }
  return plans;
}

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

SlotPool::SlotPool(const Context& context, const std::function<InferenceGraph(Context&)>& factory,
                   const PrepareOptions& options, std::vector<Region> input_regions, std::vector<Region> output_regions)
    : context_(context),
      options_(options),
      input_regions_(std::move(input_regions)),
      output_regions_(std::move(output_regions)) {
  options_.separate_allocations = options_.separate_allocations || environment_separates_allocations();
  if (options_.slots == 0) refuse("A prepared model has at least 1 slot; 0 are asked for.");
  ContextState& state = *ContextAccess::state(context_);
  state.reap();
  const auto plans = plan_slots(context_, factory, options_);
  const auto pinned = std::make_shared<const PinnedBuffer>(state.domain(), pinned_bytes(plans), "staging");
  slots_.reserve(plans.size());
  std::uint64_t offset = 0;
  for (const auto& plan : plans) {
    slots_.push_back(std::make_unique<Slot>(state, plan, pinned, offset, options_.separate_allocations));
    offset += plan->pinned.reserved;
  }
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
  for (const auto& slot : slots_) slot->require_progress();
}

std::size_t SlotPool::input_index(const Region& region) const { return index_of("input", input_regions_, region); }
std::size_t SlotPool::output_index(const Region& region) const { return index_of("output", output_regions_, region); }

}  // namespace weft
