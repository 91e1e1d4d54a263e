#include "submission.h"

#include "backoff.h"
#include "context_state.h"
#include "device/process_state.h"
#include "profiler_range.h"

#include <spdlog/fmt/fmt.h>

#include <new>
#include <string_view>

namespace weft {

namespace {

constexpr std::string_view kStopped = "It does not run, since what it follows";
constexpr std::chrono::nanoseconds kHostSpin = std::chrono::microseconds(50);  // Work of the host is rarely quick.

std::optional<RunProfile::Time> time_of(std::chrono::steady_clock::rep ticks) {
  if (ticks == 0) return {};
  return RunProfile::Time(RunProfile::Time::duration(ticks));
}

}  // namespace

Submission::Submission(ContextState& home, std::shared_ptr<const Lane> lane) noexcept
    : home_(home.weak_from_this()), lane_(std::move(lane)), asked_(lane_->launched() + 1) {}

Submission::Submission(ContextState& home, std::string label) noexcept
    : home_(home.weak_from_this()), label_(std::move(label)) {
  submitted();
}

bool Submission::is_of(const ContextState& context) const noexcept {
  const std::weak_ptr<const ContextState> own = context.weak_from_this();
  return !own.owner_before(home_) && !home_.owner_before(own);
}

void Submission::renew() noexcept {
  phase_.store(Phase::pending, std::memory_order_relaxed);
  error_.reset();
  asked_ = lane_->launched() + 1;
  submitted_.store(0, std::memory_order_relaxed);
  launched_.store(0, std::memory_order_relaxed);
  finished_.store(0, std::memory_order_relaxed);
}

void Submission::submitted() noexcept {
  submitted_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

void Submission::launched(std::uint64_t run) noexcept {
  run_ = run;
  const Clock::rep now = lane_->launched_at();
  if (submitted_.load(std::memory_order_relaxed) == 0) submitted_.store(now, std::memory_order_relaxed);
  launched_.store(now, std::memory_order_relaxed);
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

void Submission::note_finish() const noexcept {
  if (finished_.load(std::memory_order_relaxed) == 0)
    finished_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
}

CompletionStatus Submission::saw_finish() const noexcept {
  note_finish();
  Phase expected = Phase::launched;
  if (!phase_.compare_exchange_strong(expected, Phase::done, std::memory_order_acq_rel, std::memory_order_acquire))
    return expected == Phase::done ? CompletionStatus::done : CompletionStatus::pending;
  if (RunLog* const runs = log()) {
    runs->finished(run_);
    profiler_mark("done", runs->graph());
  }
  return CompletionStatus::done;
}

CompletionStatus Submission::poll() const noexcept {
  switch (phase_.load(std::memory_order_acquire)) {
    case Phase::launched:
      return lane_->has_finished(run_) ? saw_finish() : CompletionStatus::pending;
    case Phase::done:
      return CompletionStatus::done;
    case Phase::failed:
      return CompletionStatus::failed;
    case Phase::cancelled:
      return CompletionStatus::cancelled;
    case Phase::pending:
    case Phase::deciding:
      break;
  }
  return CompletionStatus::pending;
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
      case Phase::deciding:
        check(process_status(), "wait for work");  // Who decides did not come along to a child.
        return;
      case Phase::done:
      case Phase::failed:
      case Phase::cancelled:
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
  const Phase phase = phase_.load(std::memory_order_acquire);
  if (phase != Phase::failed && phase != Phase::cancelled) return {};
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

bool Submission::settle(const Error& error) noexcept {
  // Where its results are readable others may have seen so, whatever the device came to since.
  if (poll() != CompletionStatus::pending) return false;
  Phase before = Phase::launched;
  const bool is_launched =
      phase_.compare_exchange_strong(before, Phase::deciding, std::memory_order_acq_rel, std::memory_order_acquire);
  if (before == Phase::done) return false;  // Its end was seen in between.
  error_.emplace(error);
  note_finish();
  const Phase outcome = error.code() == ErrorCode::cancelled ? Phase::cancelled : Phase::failed;
  if (RunLog* const runs = log()) {
    runs->stopped(is_launched ? run_ : asked_, is_launched,
                  outcome == Phase::cancelled ? TraceOutcome::cancelled : TraceOutcome::failed);
  }
  phase_.store(outcome, std::memory_order_release);
  return true;
}

bool Submission::complete() noexcept {
  const auto lock = lock_decision();
  if (phase_.load(std::memory_order_relaxed) != Phase::pending) return false;
  note_finish();
  phase_.store(Phase::done, std::memory_order_release);
  return true;
}

bool Submission::fail(const Error& error) noexcept {
  const auto lock = lock_decision();
  return settle(error);
}

bool Submission::cancel() {
  const Error error(ErrorCode::cancelled, fmt::format("The work was cancelled while {}.", describe()));
  const auto lock = lock_decision();
  return settle(error);
}

std::string Submission::describe() const {
  return lane_ != nullptr ? lane_->describe() : fmt::format("waiting for \"{}\"", label_);
}

Error stopped_by(const Error& error) {
  // Behind what did not run itself: told once, however long the chain.
  if (error.sentence().starts_with(kStopped)) return {error.code(), error.sentence(), error.cause()};
  const bool is_cancelled = error.code() == ErrorCode::cancelled;
  return {is_cancelled                             ? ErrorCode::cancelled
          : error.code() == ErrorCode::device_lost ? error.code()
                                                   : ErrorCode::failed,
          fmt::format("{} {}: {}", kStopped, is_cancelled ? "was cancelled" : "failed", error.what()),
          error.cause() != nullptr ? error.cause() : std::make_exception_ptr(error)};
}

}  // namespace weft
