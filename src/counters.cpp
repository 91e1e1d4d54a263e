#include "counters.h"

#include "device/process_state.h"

#include <algorithm>

namespace weft {

void ContextCounters::add(const SlotSource& source) {
  const std::lock_guard lock(mutex_);
  sources_.push_back(&source);
}

void ContextCounters::remove(const SlotSource& source) noexcept {
  if (process_state() != ProcessState::running) return;  // The lock may be held by a thread that is gone.
  const std::lock_guard lock(mutex_);
  const SlotStatistics last = source.statistics();
  gone_.runs += last.runs;
  gone_.copies += last.copies;
  gone_.empty_acquires += last.empty_acquires;
  sources_.erase(std::ranges::find(sources_, &source));
}

std::uint64_t ContextCounters::models() const {
  const std::lock_guard lock(mutex_);
  return sources_.size();
}

SlotStatistics ContextCounters::slots() const {
  const std::lock_guard lock(mutex_);
  SlotStatistics sum = gone_;
  for (const SlotSource* source : sources_) sum += source->statistics();
  return sum;
}

}  // namespace weft
