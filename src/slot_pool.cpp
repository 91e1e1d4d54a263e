#include "slot_pool.h"

#include "checked_math.h"
#include "error_context.h"
#include "logging.h"
#include "profiler_range.h"
#include "refusal.h"
#include "slot_plan.h"
#include "stamping.h"
#include "unique_id.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

namespace weft {

namespace {

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
  options_.separate_allocations = separates_allocations(options_);
  const ProfilerRange range("prepare", plans.front()->forms.front().graph.title);
  ContextState& state = *ContextAccess::state(context_);
  state.reap();
  const std::uint64_t model = next_unique_id();
  const PoolNeed need = need_of(options_, plans);
  PoolCharge charge(state, need, plans.front()->forms.front().graph.title);
  graphs_ = charge.graphs();
  const auto words =
      std::make_shared<const PinnedBuffer>(state.domain(), need.words, "the completion words", charge.take(need.words));
  PinnedPart pinned;
  if (need.staging > 0) {
    pinned.page =
        std::make_shared<const PinnedBuffer>(state.domain(), need.staging, "staging", charge.take(need.staging));
  }
  slots_.reserve(plans.size());
  for (const auto& plan : plans) {
    in_context([&] { return fmt::format("preparing slot {} of {}", slots_.size(), plans.size()); },
               [&] {
                 const PinnedPart word{words, kWordBytes * slots_.size()};
                 slots_.push_back(std::make_unique<Slot>(state, plan, model, static_cast<std::uint32_t>(slots_.size()),
                                                         pinned, word, options_, charge));
               });
    pinned.offset += plan->pinned.reserved;
  }
  CallRecorder recorder(state.domain()->api());
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    in_context([&] { return fmt::format("preparing slot {} of {}", i, slots_.size()); },
               [&] { slots_[i]->record_calls(recorder); });
  }
  graphs_->begin();
  odd_slots_ = make_executables(state.domain()->api(), slots_);
  graphs_->settle();
  memory_bytes_ = need.words + need.staging + need.device + graphs_->bytes();
  for (const auto& slot : slots_) slot->settle();
  ContextCounters::Lanes lanes;
  for (const auto& slot : slots_) lanes.push_back(slot->lane());
  state.counters().add(*this, std::move(lanes));
  log_prepared();
}

SlotPool::~SlotPool() { ContextAccess::state(context_)->counters().remove(*this); }

void SlotPool::log_prepared() const noexcept {
  const Topology& topology = slots_.front()->plan().forms.front().topology;
  for (const TopologyAllocation& allocation : topology.allocations) {
    const bool is_scratch = allocation.kind == AllocationKind::scratch || allocation.kind == AllocationKind::reused;
    if (!is_scratch || allocation.offset) continue;
    log(LogLevel::warning, topology.title, [&] {
      return fmt::format(
          "The scratch \"{}\" of graph \"{}\", {} bytes, is shared: it stands in host memory, which a "
          "GPU's kernels reach over the bus.",
          allocation.label, topology.title, allocation.bytes);
    });
  }
  if (odd_slots_.empty()) return;
  log(LogLevel::info, topology.title, [&] {
    return fmt::format(
        "{} of the {} slots of graph \"{}\" were built alone, since their graphs have other shapes than "
        "slot 0's; the first is slot {}.",
        odd_slots_.size(), slots_.size(), topology.title, odd_slots_.front());
  });
}

SlotStatistics SlotPool::statistics() const noexcept {
  SlotStatistics sum;
  for (const auto& slot : slots_) sum += slot->statistics();
  sum.empty_acquires = empty_acquires_.value();
  return sum;
}

std::optional<std::uint32_t> SlotPool::find_free_slot() noexcept {
  const std::uint32_t count = size();
  const std::uint32_t first = next_.load(std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < count; ++i) {
    const std::uint32_t index = first + i < count ? first + i : first + i - count;
    if (slots_[index]->try_reserve()) {
      next_.store(index + 1 == count ? 0 : index + 1, std::memory_order_relaxed);
      return index;
    }
  }
  return {};
}

std::optional<std::uint32_t> SlotPool::try_reserve() {
  if (!queue_.has_waiters()) {
    if (const auto slot = find_free_slot()) return slot;
  }
  require_usable();
  return {};
}

std::optional<std::uint32_t> SlotPool::reserve(Deadline deadline) {
  if (const auto slot = try_reserve()) return slot;
  return queue_.wait(deadline);
}

void SlotPool::require_usable() const {
  check(ContextAccess::state(context_)->api().health(), "run requests");
  if (!std::ranges::all_of(slots_, [](const auto& slot) { return slot->lane()->has_hung(); })) return;
  throw Error(ErrorCode::failed, fmt::format("All {} slots of graph \"{}\" hang; none of them is used again.", size(),
                                             slots_.front()->plan().forms.front().graph.title));
}

void SlotPool::require_progress() const {
  for (const auto& slot : slots_) {
    const Lane& lane = *slot->lane();
    try {
      if (!lane.has_hung()) lane.require_progress(lane.launched());
    } catch (const Error&) {
      if (!lane.has_hung()) throw;
    }
  }
  require_usable();
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
