#include "sequencer.h"

#include "cleared_at_end.h"
#include "error_context.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <utility>

namespace weft {

namespace {

bool conflict(Access a, Access b) { return writes(a) || writes(b); }

/// Whether a thread that is gone may hold a lock.
bool is_process_over() noexcept { return process_state() != ProcessState::running; }

}  // namespace

void Sequencer::forget_finished(TrackedMemory& memory) noexcept {
  std::erase_if(memory.uses_, [](const TrackedMemory::Use& use) {
    const auto lane = use.lane.lock();
    return lane == nullptr || lane->has_finished(use.run);
  });
  if (memory.uses_.empty()) memory.has_uses_.store(false, std::memory_order_release);
}

// The stream's own order does for what is queued on it.
void Sequencer::follow(const Lane& lane, std::shared_ptr<const Lane> earlier) {
  if (earlier != nullptr && earlier.get() != &lane && std::ranges::find(followed_, earlier) == followed_.end())
    followed_.push_back(std::move(earlier));
}

void Sequencer::prepare(const Lane& lane, std::span<const TrackedUse> uses, std::span<const Completion> producers) {
  const ClearedAtEnd clearing{followed_};  // A lane may go, and with it a page.
  for (const Completion& producer : producers) {
    if (!producer.is_done()) follow(lane, CompletionAccess::lane(producer));
  }
  for (const TrackedUse& use : uses) {
    TrackedMemory& memory = *use.memory;
    if (memory.host_writer_ || (writes(use.access) && memory.host_readers_ > 0)) {
      throw Error(ErrorCode::busy,
                  fmt::format("The host maps the buffer \"{}\" for {}; a submission that {} it waits for "
                              "the guard to go.",
                              memory.label_, memory.host_writer_ ? "writing" : "reading",
                              writes(use.access) ? "writes" : "reads"));
    }
    forget_finished(memory);
    for (const TrackedMemory::Use& other : memory.uses_) {
      if (conflict(use.access, other.access) && use.begin < other.end && other.begin < use.end)
        follow(lane, other.lane.lock());
    }
    memory.uses_.reserve(memory.uses_.size() + uses.size());  // So that nothing fails once the run is queued.
  }
  for (const auto& earlier : followed_)
    check(earlier->precede(lane.stream()), "order a submission behind the one before it");
}

void Sequencer::enter(const std::shared_ptr<Lane>& lane, std::uint64_t run, std::span<const TrackedUse> uses) noexcept {
  for (const TrackedUse& use : uses) {
    std::vector<TrackedMemory::Use>& log = use.memory->uses_;
    const auto same = std::ranges::find_if(log, [&](const TrackedMemory::Use& other) {
      return other.lane.lock() == lane && other.begin == use.begin && other.end == use.end &&
             other.access == use.access;
    });
    if (same != log.end()) {
      same->run = run;  // A lane's runs finish in order: the last stands for all.
    } else {
      log.push_back({use.begin, use.end, use.access, lane, run});
    }
    use.memory->has_uses_.store(true, std::memory_order_release);
  }
}

bool Sequencer::has_drained(TrackedMemory& memory) {
  if (!memory.may_be_in_flight() || is_process_over()) return true;
  const std::lock_guard lock(mutex_);
  forget_finished(memory);
  return memory.uses_.empty();
}

void Sequencer::precede(TrackedMemory& memory, StreamHandle stream) noexcept {
  if (!memory.may_be_in_flight() || is_process_over()) return;
  const std::lock_guard lock(mutex_);
  forget_finished(memory);
  for (const TrackedMemory::Use& use : memory.uses_) {
    // Fails only when the device is lost.
    if (const auto lane = use.lane.lock()) static_cast<void>(lane->precede(stream));
  }
}

std::vector<LaneRun> Sequencer::runs(TrackedMemory& memory) {
  if (is_process_over()) return {};
  const std::lock_guard lock(mutex_);
  forget_finished(memory);
  std::vector<LaneRun> runs;
  runs.reserve(memory.uses_.size());
  for (const TrackedMemory::Use& use : memory.uses_) {
    if (auto lane = use.lane.lock()) runs.push_back({std::move(lane), use.run});
  }
  return runs;
}

bool Sequencer::wait(TrackedMemory& memory, Access access, Deadline deadline) {
  check(process_status(), "wait for work");
  std::vector<TrackedMemory::Use> uses;
  {
    const std::lock_guard lock(mutex_);
    uses = memory.uses_;
  }
  return std::ranges::all_of(uses, [&](const TrackedMemory::Use& use) {
    const auto lane = use.lane.lock();
    return lane == nullptr || !conflict(access, use.access) || lane->wait(use.run, deadline);
  });
}

Sequencer::Mapping Sequencer::map(TrackedMemory& memory, Access access) {
  check(process_status(), "map memory");
  const std::lock_guard lock(mutex_);
  if (memory.host_writer_ || (writes(access) && memory.host_readers_ > 0)) return Mapping::host_busy;
  forget_finished(memory);
  if (std::ranges::any_of(memory.uses_, [&](const TrackedMemory::Use& use) { return conflict(access, use.access); }))
    return Mapping::device_busy;
  if (writes(access)) {
    memory.host_writer_ = true;
  } else {
    ++memory.host_readers_;
  }
  return Mapping::granted;
}

bool Sequencer::map_when_done(TrackedMemory& memory) {
  check(process_status(), "map memory");
  const std::lock_guard lock(mutex_);
  if (memory.host_writer_) return false;
  ++memory.host_readers_;
  return true;
}

void Sequencer::unmap(TrackedMemory& memory, Access access) noexcept {
  if (is_process_over()) return;
  const std::lock_guard lock(mutex_);
  if (writes(access)) {
    memory.host_writer_ = false;
  } else {
    --memory.host_readers_;
  }
}

}  // namespace weft
