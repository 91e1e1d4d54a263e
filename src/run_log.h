#pragma once

#include "counters.h"
#include "trace_recorder.h"
#include <weft/statistics.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace weft {

/// What is counted and traced of the runs of one slot, beside what its lane counts anyway. Shared by the slot and its
/// lane, and thus by whoever looks at a run. Thread-safe; a run that is not traced and ends well costs a load a step.
class RunLog {
 public:
  RunLog(std::shared_ptr<TraceRecorder> trace, TraceTrack track)
      : trace_(std::move(trace)), track_(std::make_shared<const TraceTrack>(std::move(track))) {}

  [[nodiscard]] const std::string& graph() const noexcept { return track_->graph; }

  void acquired() noexcept { trace_->record(TraceEventKind::acquire, track_, 0); }
  void asked(std::uint64_t run) noexcept { trace_->record(TraceEventKind::submit, track_, run); }
  /// So many nodes were set for the run that is about to be launched.
  void patched(std::uint32_t nodes) noexcept { patched_.store(nodes, std::memory_order_relaxed); }
  void launched(std::uint64_t run) noexcept {
    trace_->record(TraceEventKind::launch, track_, run, TraceOutcome::finished,
                   patched_.load(std::memory_order_relaxed));
  }
  /// For who is the first to see it.
  void finished(std::uint64_t run) noexcept { trace_->record(TraceEventKind::finish, track_, run); }
  /// A run that was asked for was refused; it counts nowhere.
  void refused(std::uint64_t run) noexcept {
    trace_->record(TraceEventKind::finish, track_, run, TraceOutcome::failed);
  }
  /// For who decides that a run has failed or is cancelled, while it is in flight or before its launch.
  void stopped(std::uint64_t run, bool is_launched, TraceOutcome outcome) noexcept {
    trace_->record(TraceEventKind::finish, track_, run, outcome);
    (outcome == TraceOutcome::cancelled ? cancelled_ : failed_).add(1);
    if (!is_launched) return unlaunched_.add(1);
    last_stopped_.store(run, std::memory_order_relaxed);
    stopped_.add(1);
  }
  /// It was being launched when it was stopped.
  void launched_although_stopped(std::uint64_t run) noexcept {
    unlaunched_.subtract(1);
    last_stopped_.store(run, std::memory_order_relaxed);
    stopped_.add(1);
  }

  /// Of a lane with these counts, read before this is called. One run at most is in flight: `finished` lacks it.
  [[nodiscard]] RunCounters counters(std::uint64_t launched, std::uint64_t finished) const noexcept {
    const std::uint64_t stopped = stopped_.value();
    const bool is_last_in_flight = stopped > 0 && last_stopped_.load(std::memory_order_relaxed) > finished;
    const std::uint64_t over = stopped - (is_last_in_flight ? 1 : 0);
    return {.submitted = launched + unlaunched_.value(),
            .completed = finished - (over < finished ? over : finished),
            .failed = failed_.value(),
            .cancelled = cancelled_.value()};
  }

 private:
  std::shared_ptr<TraceRecorder> trace_;
  std::shared_ptr<const TraceTrack> track_;
  SharedCounter failed_;
  SharedCounter cancelled_;
  SharedCounter unlaunched_;  // Of those two, stopped before their launch.
  SharedCounter stopped_;     // The others, which the lane counts as well when they end.
  std::atomic<std::uint64_t> last_stopped_{0};
  std::atomic<std::uint32_t> patched_{0};  // Of the last run; stays 0 for models without late arguments.
};

}  // namespace weft
