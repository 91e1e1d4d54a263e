#include "submission.h"

#include "backoff.h"
#include "context_state.h"
#include "device/process_state.h"
#include "profiler_range.h"

#include <spdlog/fmt/fmt.h>

#include <new>

namespace weft {

namespace {

constexpr std::chrono::nanoseconds kHostSpin = std::chrono::microseconds(50);  // Work of the host is rarely quick.

std::optional<RunProfile::Time> time_of(std::chrono::steady_clock::rep ticks) {
  if (ticks == 0) return {};
  return RunProfile::Time(RunProfile::Time::duration(ticks));
}

}  // namespace

Submission::Submission(ContextState& home, std::shared_ptr<const Lane> lane) noexcept
    : home_(home.weak_from_this()), home_address_(&home), lane_(std::move(lane)) {
  submitted_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

Submission::Submission(ContextState& home, std::string label) noexcept
    : home_(home.weak_from_this()), home_address_(&home), label_(std::move(label)) {
  submitted_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

void Submission::renew() noexcept {
  phase_.store(Phase::pending, std::memory_order_relaxed);
  error_.reset();
  submitted_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
  launched_.store(0, std::memory_order_relaxed);
  finished_.store(0, std::memory_order_relaxed);
}

void Submission::launched(std::uint64_t run) noexcept {
  run_ = run;
  launched_.store(lane_->launched_at(), std::memory_order_relaxed);
  if (RunLog* const runs = log()) runs->launched(run);
  phase_.store(Phase::launched, std::memory_order_release);
}

void Submission::launch(std::uint64_t run) noexcept {
  const auto lock = lock_decision();
  if (phase_.load(std::memory_order_relaxed) == Phase::pending) {
    launched(run);
  } else if (RunLog* const runs = log()) {
    runs->launched_although_stopped(run);
  }
}

bool Submission::note_finish() const noexcept {
  if (finished_.load(std::memory_order_relaxed) != 0) return false;
  Clock::rep unseen = 0;
  return finished_.compare_exchange_strong(unseen, Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

void Submission::saw_finish() const noexcept {
  if (!note_finish()) return;
  RunLog* const runs = log();
  if (runs == nullptr) return;
  runs->finished(run_);
  profiler_mark("done", runs->graph());
}

CompletionStatus Submission::poll() const noexcept {
  switch (phase_.load(std::memory_order_acquire)) {
    case Phase::pending:
      return CompletionStatus::pending;
    case Phase::launched:
      if (!lane_->has_finished(run_)) return CompletionStatus::pending;
      break;
    case Phase::done:
      break;
    case Phase::failed:
      return CompletionStatus::failed;
    case Phase::cancelled:
      return CompletionStatus::cancelled;
  }
  saw_finish();
  return CompletionStatus::done;
}

void Submission::ask_device() noexcept {
  try {
    switch (phase_.load(std::memory_order_acquire)) {
      case Phase::pending:
        check(process_status(), "wait for work");
        if (lane_ != nullptr) check(lane_->health(), "run what waits for the host");
        return;
      case Phase::launched:
        lane_->require_progress(run_);
        return;
      default:
        return;
    }
  } catch (const Error& error) {
    fail(error);
  } catch (const std::bad_alloc&) {
    // The question is asked again.
  }
}

bool Submission::wait(Deadline deadline) {
  const auto is_over = [&] { return poll() != CompletionStatus::pending; };
  if (!wait_until(lane_ == nullptr ? kHostSpin : lane_->spin(), deadline, is_over, [&] { ask_device(); })) return false;
  if (const auto failure = error()) throw Error(*failure);
  return true;
}

std::optional<Error> Submission::error() const {
  if (!is_over(phase_.load(std::memory_order_acquire))) return {};
  return error_;
}

RunProfile Submission::profile() const noexcept {
  return {.submitted = time_of(submitted_.load(std::memory_order_relaxed)),
          .launched = time_of(launched_.load(std::memory_order_relaxed)),
          .finished = time_of(finished_.load(std::memory_order_relaxed))};
}

std::unique_lock<std::mutex> Submission::lock_decision() noexcept {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (process_state() != ProcessState::forked) lock.lock();
  return lock;
}

void Submission::settle(const Error& error) noexcept {
  error_.emplace(error);
  static_cast<void>(note_finish());
  const Phase outcome = error.code() == ErrorCode::cancelled ? Phase::cancelled : Phase::failed;
  if (RunLog* const runs = log()) {
    const bool is_launched = phase_.load(std::memory_order_relaxed) == Phase::launched;
    runs->stopped(is_launched ? run_ : lane_->launched() + 1, is_launched,
                  outcome == Phase::cancelled ? TraceOutcome::cancelled : TraceOutcome::failed);
  }
  phase_.store(outcome, std::memory_order_release);
}

bool Submission::complete() noexcept {
  const auto lock = lock_decision();
  if (phase_.load(std::memory_order_relaxed) != Phase::pending) return false;
  saw_finish();
  phase_.store(Phase::done, std::memory_order_release);
  return true;
}

bool Submission::fail(const Error& error) noexcept {
  const auto lock = lock_decision();
  // Where its results are readable others may have seen so, whatever the device came to since.
  if (poll() != CompletionStatus::pending) return false;
  settle(error);
  return true;
}

bool Submission::cancel() {
  const Error error(ErrorCode::cancelled, fmt::format("The work was cancelled while {}.", describe()));
  const auto lock = lock_decision();
  if (poll() != CompletionStatus::pending) return false;
  settle(error);
  return true;
}

std::string Submission::describe() const {
  return lane_ != nullptr ? lane_->describe() : fmt::format("waiting for \"{}\"", label_);
}

Error stopped_by(const Error& error) {
  const bool is_cancelled = error.code() == ErrorCode::cancelled;
  return {is_cancelled                             ? ErrorCode::cancelled
          : error.code() == ErrorCode::device_lost ? error.code()
                                                   : ErrorCode::failed,
          fmt::format("It does not run, since what it follows {}: {}", is_cancelled ? "was cancelled" : "failed",
                      error.what()),
          error.cause() != nullptr ? error.cause() : std::make_exception_ptr(error)};
}

}  // namespace weft
