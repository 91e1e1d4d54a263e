#pragma once

#include "device/process_state.h"
#include "lane.h"
#include "submission.h"
#include "tracked_memory.h"
#include <weft/completion.h>
#include <weft/contract.h>
#include <weft/deadline.h>
#include <weft/error.h>

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace weft {

/// What a submission runs behind.
struct SubmissionOrder {
  std::span<const TrackedUse> uses;       ///< What it does to memory that others may touch.
  std::span<const Completion> producers;  ///< Whose failure or cancellation stops it.
};

/// Orders submissions that touch the same bytes, across graphs and streams, by the order of their submission; disjoint
/// ones never wait for one another. One a context. Thread-safe. Once the process is not running any more (see
/// device/process_state.h) it takes no lock: submissions and maps are refused, and nothing is in flight.
///
/// A stream waits for what has been launched. What waits for the host (a producer that the host completes, or bytes of
/// a submission that waits so itself) is gated: accepted, entered in its place, and launched by `advance`.
class Sequencer {
 public:
  /// `home` outlives this object and may still be under construction.
  explicit Sequencer(const ContextState& home) noexcept : home_(home) {}
  Sequencer(const Sequencer&) = delete;
  Sequencer& operator=(const Sequencer&) = delete;

  /// Runs `enqueue`, which puts one run on `lane` or throws, behind the producers and everything in flight that
  /// conflicts with the uses, and enters the run for those that come later. The stream waits, the caller does not. When
  /// it has to wait for the host, calls `gate` instead, which sees to it that somebody calls `advance` from then on,
  /// and whose result does what `enqueue` does, later and on another thread, and owns all that it and the uses need.
  /// Errors, and nothing is submitted: `busy` while the host maps memory in a way that conflicts; `invalid` for a
  /// producer of another context; `failed` or `cancelled` when a producer is; what `enqueue` or `gate` throws.
  template <class Enqueue, class Gate>
  void submit(const SubmissionPtr& submission, const std::shared_ptr<Lane>& lane, const SubmissionOrder& order,
              Enqueue&& enqueue, Gate&& gate) {
    check(process_status(), "submit work");
    const std::lock_guard lock(mutex_);
    if (prepare(order)) {
      hold(submission, lane, order, std::forward<Gate>(gate)());
    } else {
      submission->launched(start(*lane, order, std::forward<Enqueue>(enqueue)));
      enter(lane, submission->run(), order.uses);
    }
  }

  /// Reserves the uses for work that is about to be queued on `stream` outside weft, and makes the stream follow the
  /// producers and everything in flight that conflicts. Until the reservation ends, submissions, maps and reservations
  /// that conflict are refused with `busy`. Its number, or nothing where it would have to wait for the host. Errors: as
  /// `submit`.
  [[nodiscard]] std::optional<std::uint64_t> try_reserve(const SubmissionOrder& order, StreamHandle stream);
  /// Enters work that was queued outside weft, whatever is in flight or mapped: `enqueue` puts a run on `lane` that
  /// ends once the work has, or throws. What comes later follows it, and so does what waits for the host. Ends the
  /// reservation, if there is one.
  template <class Enqueue>
  void enter_foreign(const SubmissionPtr& submission, const std::shared_ptr<Lane>& lane,
                     std::span<const TrackedUse> uses, std::uint64_t reservation, Enqueue&& enqueue) {
    check(process_status(), "submit work");
    const std::lock_guard lock(mutex_);
    make_room(uses);
    submission->launched(lane->run(std::forward<Enqueue>(enqueue)));
    enter(lane, submission->run(), uses);
    end_with_lock_held(uses, reservation);
  }
  /// Ends a reservation of these uses without anything queued.
  void end(std::span<const TrackedUse> uses, std::uint64_t reservation) noexcept;

  /// Launches what need not wait for the host any longer, and drops what never will run, each before the next: all that
  /// stands behind it follows in the same call. What a submission kept is let go, under no lock, before its launch or
  /// outcome shows: who sees a run finished finds its slot free. Returns whether some is left. For one thread at a
  /// time.
  [[nodiscard]] bool advance() noexcept;
  /// Whether somebody is bound to call `advance` again. For the `gate` of `submit`: with the lock held.
  [[nodiscard]] bool is_advanced() const noexcept { return is_advanced_; }

  /// Whether nothing is in flight on the memory, nor waits for the host.
  [[nodiscard]] bool has_drained(TrackedMemory& memory);
  /// Makes what is queued on `stream` from now on follow all that is in flight on the memory: before it is freed there.
  void precede(TrackedMemory& memory, StreamHandle stream) noexcept;
  /// Waits for what is in flight on the memory and conflicts with an access to all of it; false when the deadline
  /// passed.
  [[nodiscard]] bool wait(TrackedMemory& memory, Access access, Deadline deadline);
  /// What is in flight on the memory.
  [[nodiscard]] std::vector<LaneRun> runs(TrackedMemory& memory);

  enum class Mapping : std::uint8_t { granted, device_busy, host_busy, reserved };
  /// Reserves the memory for the host: many readers, or one writer. Never waits.
  [[nodiscard]] Mapping map(TrackedMemory& memory, Access access);
  /// Reserves the memory for a host that reads it once what is in flight is done. Never `device_busy`.
  [[nodiscard]] Mapping map_when_done(TrackedMemory& memory);
  void unmap(TrackedMemory& memory, Access access) noexcept;

 private:
  /// A submission that waits for the host.
  struct Gated {
    std::uint64_t number = 0;  // In the order of submission.
    SubmissionPtr submission;
    std::shared_ptr<Lane> lane;
    std::vector<TrackedUse> uses;
    std::vector<Completion> producers;
    std::function<void()> enqueue = nullptr;
    // What became of it: a run of the lane, an error, or neither where it was decided meanwhile.
    std::uint64_t run = 0;
    std::optional<Error> failure = {};
  };

  // All below: with the lock held.
  /// Refuses what cannot be submitted; whether it has to wait for the host.
  [[nodiscard]] bool prepare(const SubmissionOrder& order);
  template <class Enqueue>
  std::uint64_t start(Lane& lane, const SubmissionOrder& order, Enqueue&& enqueue) {
    follow(lane.stream(), &lane, order);
    return lane.run(std::forward<Enqueue>(enqueue));
  }
  /// `own` is the lane of the stream, if it is one's.
  void follow(StreamHandle stream, const Lane* own, const SubmissionOrder& order);
  static void make_room(std::span<const TrackedUse> uses);
  static void require_unreserved(const TrackedUse& use);
  /// Whether an access to all of the memory conflicts with a reservation.
  [[nodiscard]] static bool is_reserved(const TrackedMemory& memory, Access access) noexcept;
  static void end_with_lock_held(std::span<const TrackedUse> uses, std::uint64_t reservation) noexcept;
  void hold(const SubmissionPtr& submission, const std::shared_ptr<Lane>& lane, const SubmissionOrder& order,
            std::function<void()> enqueue);
  /// Launches or drops it; false where it still waits.
  [[nodiscard]] bool settle(Gated& gated);
  [[nodiscard]] bool try_settle(Gated& gated) noexcept;
  /// Whether the uses conflict with those of a gated submission before `number`.
  [[nodiscard]] static bool is_behind_gate(std::span<const TrackedUse> uses, std::uint64_t number) noexcept;
  static void enter(const std::shared_ptr<Lane>& lane, std::uint64_t run, std::span<const TrackedUse> uses) noexcept;
  static void forget_finished(TrackedMemory& memory) noexcept;
  static void forget_gate(std::span<const TrackedUse> uses, std::uint64_t number) noexcept;

  const ContextState& home_;
  std::mutex mutex_;
  std::list<Gated> gated_;
  bool is_advanced_ = false;
  std::uint64_t gates_ = 0;                            // So far.
  std::uint64_t reservations_ = 0;                     // So far.
  std::vector<std::shared_ptr<const Lane>> followed_;  // Scratch of `follow`.
};

}  // namespace weft
