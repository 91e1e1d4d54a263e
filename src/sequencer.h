#pragma once

#include "device/process_state.h"
#include "lane.h"
#include "tracked_memory.h"
#include <weft/completion.h>
#include <weft/contract.h>
#include <weft/deadline.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

namespace weft {

/// Orders submissions that touch the same bytes, across graphs and streams, by the order of their submission; disjoint
/// ones never wait for one another. One a context. Thread-safe. Once the process is not running any more (see
/// device/process_state.h) it takes no lock: submissions and maps are refused, and nothing is in flight.
class Sequencer {
 public:
  /// Runs `enqueue`, which puts one run on `lane` or throws, behind `producers` and everything in flight that conflicts
  /// with `uses`, and enters the run for those that come later. Returns the run's number. The stream waits, the caller
  /// does not. Errors: `busy` while the host maps memory in a way that conflicts; nothing is submitted on any error.
  template <class Enqueue>
  std::uint64_t submit(const std::shared_ptr<Lane>& lane, std::span<const TrackedUse> uses, Enqueue&& enqueue,
                       std::span<const Completion> producers = {}) {
    check(process_status(), "submit work");
    const std::lock_guard lock(mutex_);
    prepare(*lane, uses, producers);
    const std::uint64_t run = lane->run(std::forward<Enqueue>(enqueue));
    enter(lane, run, uses);
    return run;
  }

  /// Whether nothing is in flight on the memory.
  [[nodiscard]] bool has_drained(TrackedMemory& memory);
  /// Makes what is queued on `stream` from now on follow all that is in flight on the memory: before it is freed there.
  void precede(TrackedMemory& memory, StreamHandle stream) noexcept;
  /// Waits for what is in flight on the memory and conflicts with an access to all of it; false when the deadline
  /// passed.
  [[nodiscard]] bool wait(TrackedMemory& memory, Access access, Deadline deadline);
  /// What is in flight on the memory.
  [[nodiscard]] std::vector<LaneRun> runs(TrackedMemory& memory);

  enum class Mapping : std::uint8_t { granted, device_busy, host_busy };
  /// Reserves the memory for the host: many readers, or one writer. Never waits.
  [[nodiscard]] Mapping map(TrackedMemory& memory, Access access);
  /// Reserves the memory for a host that reads it once what is in flight is done; false while the host writes it.
  [[nodiscard]] bool map_when_done(TrackedMemory& memory);
  void unmap(TrackedMemory& memory, Access access) noexcept;

 private:
  // All below: with the lock held.
  void prepare(const Lane& lane, std::span<const TrackedUse> uses, std::span<const Completion> producers);
  void follow(const Lane& lane, std::shared_ptr<const Lane> earlier);
  static void enter(const std::shared_ptr<Lane>& lane, std::uint64_t run, std::span<const TrackedUse> uses) noexcept;
  static void forget_finished(TrackedMemory& memory) noexcept;

  std::mutex mutex_;
  std::vector<std::shared_ptr<const Lane>> followed_;  // Scratch of `prepare`.
};

}  // namespace weft
