#include "sequencer.h"

#include "backoff.h"
#include "cleared_at_end.h"
#include "refusal.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <new>
#include <optional>
#include <utility>

namespace weft {

namespace {

constexpr std::uint64_t kAnyGate = std::numeric_limits<std::uint64_t>::max();
constexpr std::chrono::microseconds kSpin{200};

bool conflict(Access a, Access b) { return writes(a) || writes(b); }

/// Two uses of the same memory.
template <class Use>
bool conflict(const TrackedUse& use, const Use& other) {
  return conflict(use.access, other.access) && use.begin < other.end && other.begin < use.end;
}

/// How a producer stands to what follows it.
struct Standing {
  bool waits_for_host = false;
  std::optional<Error> failure;
};

// In this order: a producer that is decided between the two questions is one that still waits, and never one that
// neither waits nor has failed.
Standing standing_of(const Submission& producer) {
  Standing standing;
  standing.waits_for_host = producer.waits_for_host();
  standing.failure = producer.error();
  return standing;
}

/// Whether a thread that is gone may hold a lock.
bool is_process_over() noexcept { return process_state() != ProcessState::running; }

}  // namespace

void Sequencer::forget_finished(TrackedMemory& memory) noexcept {
  std::erase_if(memory.uses_, [](const TrackedMemory::Use& use) {
    if (use.gate != 0) return false;
    const auto lane = use.lane.lock();
    return lane == nullptr || lane->has_finished(use.run);
  });
  if (memory.uses_.empty()) memory.has_uses_.store(false, std::memory_order_release);
}

void Sequencer::forget_gate(std::span<const TrackedUse> uses, std::uint64_t number) noexcept {
  for (const TrackedUse& use : uses) {
    std::erase_if(use.memory->uses_, [&](const TrackedMemory::Use& other) { return other.gate == number; });
    forget_finished(*use.memory);
  }
}

bool Sequencer::is_behind_gate(std::span<const TrackedUse> uses, std::uint64_t number) noexcept {
  return std::ranges::any_of(uses, [&](const TrackedUse& use) {
    return std::ranges::any_of(use.memory->uses_, [&](const TrackedMemory::Use& other) {
      return other.gate != 0 && other.gate < number && conflict(use, other);
    });
  });
}

bool Sequencer::prepare(const SubmissionOrder& order) {
  bool waits_for_host = false;
  for (const Completion& producer : order.producers) {
    const Submission* submission = CompletionAccess::submission(producer);
    if (submission == nullptr) continue;
    if (!submission->is_of(home_)) refuse("A completion that the submission follows belongs to another context.");
    const Standing standing = standing_of(*submission);
    if (standing.failure) throw stopped_by(*standing.failure);
    waits_for_host = waits_for_host || standing.waits_for_host;
  }
  for (const TrackedUse& use : order.uses) {
    TrackedMemory& memory = *use.memory;
    if (memory.host_writer_ || (writes(use.access) && memory.host_readers_ > 0)) {
      throw Error(ErrorCode::busy,
                  fmt::format("The host maps the buffer \"{}\" for {}; a submission that {} it waits for "
                              "the guard to go.",
                              memory.label_, memory.host_writer_ ? "writing" : "reading",
                              writes(use.access) ? "writes" : "reads"));
    }
    if (writes(use.access) && memory.is_read_only_)
      refuse(fmt::format("The buffer \"{}\" was lent to be read; nothing writes it.", memory.label_));
    require_unreserved(use);
  }
  make_room(order.uses);
  return waits_for_host || is_behind_gate(order.uses, kAnyGate);
}

// So that nothing fails once the run is queued.
void Sequencer::make_room(std::span<const TrackedUse> uses) {
  for (const TrackedUse& use : uses) {
    forget_finished(*use.memory);
    use.memory->uses_.reserve(use.memory->uses_.size() + uses.size());
  }
}

void Sequencer::require_unreserved(const TrackedUse& use) {
  for (const TrackedMemory::Reserved& reserved : use.memory->reserved_) {
    if (!conflict(use, reserved)) continue;
    throw Error(
        ErrorCode::busy,
        fmt::format("The bytes {} to {} of the buffer \"{}\" are reserved for {} outside weft, until the callback "
                    "that queues it returns; the bytes {} to {} are asked for.",
                    reserved.begin, reserved.end, use.memory->label_, writes(reserved.access) ? "writing" : "reading",
                    use.begin, use.end));
  }
}

bool Sequencer::is_reserved(const TrackedMemory& memory, Access access) noexcept {
  return std::ranges::any_of(
      memory.reserved_, [&](const TrackedMemory::Reserved& reserved) { return conflict(access, reserved.access); });
}

std::optional<std::uint64_t> Sequencer::try_reserve(const SubmissionOrder& order, StreamHandle stream) {
  check(process_status(), "reserve memory");
  const std::lock_guard lock(mutex_);
  if (prepare(order)) return {};
  for (const TrackedUse& use : order.uses)
    use.memory->reserved_.reserve(use.memory->reserved_.size() + order.uses.size());
  follow(stream, nullptr, order);
  ++reservations_;
  for (const TrackedUse& use : order.uses)
    use.memory->reserved_.push_back({use.begin, use.end, use.access, reservations_});
  return reservations_;
}

void Sequencer::end_with_lock_held(std::span<const TrackedUse> uses, std::uint64_t reservation) noexcept {
  for (const TrackedUse& use : uses) {
    std::erase_if(use.memory->reserved_,
                  [&](const TrackedMemory::Reserved& reserved) { return reserved.reservation == reservation; });
  }
}

void Sequencer::end(std::span<const TrackedUse> uses, std::uint64_t reservation) noexcept {
  if (is_process_over()) return;
  const std::lock_guard lock(mutex_);
  end_with_lock_held(uses, reservation);
}

// What a lane's own stream has queued is ordered before by the stream.
void Sequencer::follow(StreamHandle stream, const Lane* own, const SubmissionOrder& order) {
  const ClearedAtEnd clearing{followed_};  // A lane may go, and with it a page.
  const auto add = [&](std::shared_ptr<const Lane> earlier) {
    if (earlier != nullptr && earlier.get() != own && std::ranges::find(followed_, earlier) == followed_.end())
      followed_.push_back(std::move(earlier));
  };
  for (const Completion& producer : order.producers) {
    // Whatever its outcome: one that was cancelled behind its launch still writes.
    const Submission* submission = CompletionAccess::submission(producer);
    if (submission == nullptr || submission->lane() == nullptr) continue;
    if (!submission->lane()->has_finished(submission->run())) add(submission->lane());
  }
  for (const TrackedUse& use : order.uses) {
    for (const TrackedMemory::Use& other : use.memory->uses_) {
      if (other.gate == 0 && conflict(use, other)) add(other.lane.lock());
    }
  }
  for (const auto& earlier : followed_) check(earlier->precede(stream), "order a submission behind the one before it");
}

void Sequencer::enter(const std::shared_ptr<Lane>& lane, std::uint64_t run, std::span<const TrackedUse> uses) noexcept {
  for (const TrackedUse& use : uses) {
    std::vector<TrackedMemory::Use>& log = use.memory->uses_;
    const auto same = std::ranges::find_if(log, [&](const TrackedMemory::Use& other) {
      return other.gate == 0 && other.lane.lock() == lane && other.begin == use.begin && other.end == use.end &&
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

void Sequencer::hold(const SubmissionPtr& submission, const std::shared_ptr<Lane>& lane, const SubmissionOrder& order,
                     std::function<void()> enqueue) {
  gated_.push_back({.number = gates_ + 1,
                    .submission = submission,
                    .lane = lane,
                    .uses = {order.uses.begin(), order.uses.end()},
                    .producers = {order.producers.begin(), order.producers.end()},
                    .enqueue = std::move(enqueue)});
  is_advanced_ = true;
  ++gates_;
  submission->submitted();
  for (const TrackedUse& use : order.uses) {
    use.memory->uses_.push_back({use.begin, use.end, use.access, lane, 0, gates_});
    use.memory->has_uses_.store(true, std::memory_order_release);
  }
}

bool Sequencer::settle(Gated& gated) {
  bool waits_for_host = false;
  for (const Completion& producer : gated.producers) {
    const Submission* submission = CompletionAccess::submission(producer);
    if (submission == nullptr) continue;
    const Standing standing = standing_of(*submission);
    if (standing.failure) gated.failure = stopped_by(*standing.failure);
    waits_for_host = waits_for_host || standing.waits_for_host;
  }
  if (gated.submission->waits_for_host() && !gated.failure) {
    if (waits_for_host || is_behind_gate(gated.uses, gated.number)) return false;
    try {
      gated.run = start(*gated.lane, {gated.uses, gated.producers}, gated.enqueue);
    } catch (const Error& error) {
      gated.failure = error;
    }
  }
  if (gated.run == 0) {
    forget_gate(gated.uses, gated.number);
    return true;
  }
  // In place: who looks without the lock must not find the memory drained in between.
  for (const TrackedUse& use : gated.uses) {
    for (TrackedMemory::Use& entry : use.memory->uses_) {
      if (entry.gate != gated.number) continue;
      entry.run = gated.run;
      entry.gate = 0;
    }
  }
  return true;
}

bool Sequencer::try_settle(Gated& gated) noexcept {
  try {
    return settle(gated);
  } catch (const std::bad_alloc&) {
    return false;  // It is looked at again.
  }
}

bool Sequencer::advance() noexcept {
  if (is_process_over()) return true;
  std::unique_lock lock(mutex_);
  // In the order of submission: what the next one follows stands before it.
  for (auto next = gated_.begin(); next != gated_.end();) {
    const auto gated = next++;
    if (!try_settle(*gated)) continue;
    std::list<Gated> over;
    over.splice(over.end(), gated_, gated);
    lock.unlock();
    Gated& settled = over.front();
    settled.enqueue = nullptr;
    settled.producers.clear();
    if (settled.run != 0) settled.submission->launch(settled.run);
    if (settled.failure) settled.submission->fail(*settled.failure);
    over.clear();
    lock.lock();
  }
  is_advanced_ = !gated_.empty();
  return is_advanced_;
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
  std::erase_if(uses, [&](const TrackedMemory::Use& use) { return !conflict(access, use.access); });
  const auto is_gated = [&](const TrackedMemory::Use& use) {
    const std::lock_guard lock(mutex_);
    return std::ranges::any_of(memory.uses_, [&](const auto& other) { return other.gate == use.gate; });
  };
  const auto is_over = [&](const TrackedMemory::Use& use) {
    if (use.gate != 0) return !is_gated(use);
    const auto lane = use.lane.lock();
    return lane == nullptr || lane->has_finished(use.run);
  };
  return wait_until(
      kSpin, deadline, [&] { return std::ranges::all_of(uses, is_over); },
      [&] {
        check(process_status(), "wait for work");
        for (const TrackedMemory::Use& use : uses) {
          const auto lane = use.lane.lock();
          if (lane != nullptr && use.gate == 0) lane->require_progress(use.run);
        }
      });
}

Sequencer::Mapping Sequencer::map(TrackedMemory& memory, Access access) {
  check(process_status(), "map memory");
  const std::lock_guard lock(mutex_);
  if (writes(access) && memory.is_read_only_)
    refuse(fmt::format("The buffer \"{}\" was lent to be read; nothing writes it.", memory.label_));
  if (memory.host_writer_ || (writes(access) && memory.host_readers_ > 0)) return Mapping::host_busy;
  if (is_reserved(memory, access)) return Mapping::reserved;
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

Sequencer::Mapping Sequencer::map_when_done(TrackedMemory& memory) {
  check(process_status(), "map memory");
  const std::lock_guard lock(mutex_);
  if (memory.host_writer_) return Mapping::host_busy;
  if (is_reserved(memory, Access::read)) return Mapping::reserved;
  ++memory.host_readers_;
  return Mapping::granted;
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
