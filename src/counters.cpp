#include "counters.h"

#include "device/process_state.h"
#include "lane.h"

#include <algorithm>
#include <utility>

namespace weft {

namespace {

std::uint64_t ended(const RunCounters& runs) noexcept { return runs.completed + runs.failed + runs.cancelled; }

}  // namespace

SlotStatistics runs_of(const Lane& lane) noexcept {
  const std::uint64_t launched = lane.launched();
  const std::uint64_t in_flight = lane.has_finished(launched) ? 0 : 1;
  return {.in_flight = in_flight, .runs = lane.log()->counters(launched, launched - in_flight)};
}

void ContextCounters::add(const SlotSource& source, Lanes lanes) {
  const std::lock_guard lock(mutex_);
  sources_.push_back({&source, std::move(lanes)});
}

void ContextCounters::remove(const SlotSource& source) noexcept {
  if (process_state() != ProcessState::running) return;  // The lock may be held by a thread that is gone.
  Lanes drained;
  const std::lock_guard lock(mutex_);
  const auto removed = std::ranges::find(sources_, &source, &Source::slots);
  const SlotStatistics last = source.statistics();
  gone_.copies += last.copies;
  gone_.empty_acquires += last.empty_acquires;
  gone_.patched_nodes += last.patched_nodes;
  late_.splice(late_.end(), removed->lanes);
  sources_.erase(removed);
  settle(drained);
}

void ContextCounters::settle() noexcept {
  if (process_state() != ProcessState::running) return;  // As above.
  Lanes drained;
  const std::lock_guard lock(mutex_);
  settle(drained);
}

void ContextCounters::settle(Lanes& drained) noexcept {
  for (auto next = late_.begin(); next != late_.end();) {
    const auto lane = next++;
    SlotStatistics last = runs_of(**lane);
    if (!(*lane)->health().ok()) {
      last.runs.failed += last.runs.submitted - std::min(last.runs.submitted, ended(last.runs));  // Nothing runs now.
    } else if (last.in_flight > 0 || ended(last.runs) != last.runs.submitted) {
      continue;  // Or its end is being decided at this moment.
    }
    gone_.runs += last.runs;
    drained.splice(drained.end(), late_, lane);
  }
}

std::uint64_t ContextCounters::models() const {
  const std::lock_guard lock(mutex_);
  return sources_.size();
}

SlotStatistics ContextCounters::slots() const {
  const std::lock_guard lock(mutex_);
  SlotStatistics sum = gone_;
  for (const Source& source : sources_) sum += source.slots->statistics();
  for (const auto& lane : late_) sum += runs_of(*lane);
  return sum;
}

}  // namespace weft
