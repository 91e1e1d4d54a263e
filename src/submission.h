#pragma once

#include "lane.h"
#include <weft/completion.h>
#include <weft/deadline.h>
#include <weft/error.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace weft {

class ContextState;

/// One run that was asked for, or work of the host that runs follow, and what became of it.
///
/// It is pending until it is launched on a lane, or decided: completed by the host, failed, or cancelled. What is
/// launched is done when its lane says so, and may still fail with the device or have its results refused by a
/// cancellation. Counted by its handles (SubmissionPtr, Completion), so that a slot can use its own again when nobody
/// else looks at it. Thread-safe.
class Submission {
 public:
  /// A run for `lane`, the name of which stands in messages.
  Submission(ContextState& home, std::shared_ptr<const Lane> lane) noexcept;
  /// Work of the host.
  Submission(ContextState& home, std::string label) noexcept;
  Submission(const Submission&) = delete;
  Submission& operator=(const Submission&) = delete;

  void share() noexcept { handles_.fetch_add(1, std::memory_order_relaxed); }
  void drop() noexcept {
    if (handles_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  /// Whether the caller's handle is the only one.
  [[nodiscard]] bool is_unique() const noexcept { return handles_.load(std::memory_order_acquire) == 1; }
  /// Makes it a new run of the same lane, submitted when it is launched. For who has the only handle.
  void renew() noexcept;
  /// It was submitted now, and is launched later. For who submits, while nobody else has a handle.
  void submitted() noexcept;

  [[nodiscard]] bool is_of(const ContextState& context) const noexcept;
  [[nodiscard]] const std::weak_ptr<ContextState>& home() const noexcept { return home_; }

  /// Whether it is neither launched nor decided.
  [[nodiscard]] bool waits_for_host() const noexcept {
    return phase_.load(std::memory_order_acquire) == Phase::pending;
  }
  /// As Completion::poll, Completion::wait and Completion::error.
  [[nodiscard]] CompletionStatus poll() const noexcept;
  [[nodiscard]] bool wait(Deadline deadline);
  [[nodiscard]] std::optional<Error> error() const;
  [[nodiscard]] RunProfile profile() const noexcept;
  /// Asks the device about a run that takes long; what is wrong becomes its outcome.
  void ask_device() noexcept;

  /// The lane that it runs on, once it is launched.
  [[nodiscard]] const std::shared_ptr<const Lane>& lane() const noexcept { return lane_; }
  [[nodiscard]] std::uint64_t run() const noexcept { return run_; }

  /// It was launched as `run` of its lane. For who launches, while nobody else has a handle.
  void launched(std::uint64_t run) noexcept;
  /// The same when others have handles: nothing changes if it was decided meanwhile.
  void launch(std::uint64_t run) noexcept;
  /// Decide it, unless it is: then false. `fail` also ends a run that was launched; with an error of code `cancelled`
  /// the outcome is that.
  bool complete() noexcept;
  bool fail(const Error& error) noexcept;
  bool cancel();

  /// For the contexts of errors.
  [[nodiscard]] std::string describe() const;

 private:
  /// `deciding` is that of a launched run which is being failed or cancelled: its end comes too late then.
  enum class Phase : std::uint8_t { pending, launched, deciding, done, failed, cancelled };

  ~Submission() = default;
  /// Not taken in a forked child, which has one thread: another that is gone may hold it.
  [[nodiscard]] std::unique_lock<std::mutex> lock_decision() noexcept;
  /// For who has the lock. False when it was over before.
  bool settle(const Error& error) noexcept;
  /// Null for what is no slot's run.
  [[nodiscard]] RunLog* log() const noexcept { return lane_ == nullptr ? nullptr : lane_->log(); }
  void note_finish() const noexcept;
  /// Its lane says that it has finished: it is done, unless somebody decides otherwise at this moment.
  CompletionStatus saw_finish() const noexcept;

  std::atomic<std::uint64_t> handles_{1};
  mutable std::atomic<Phase> phase_{Phase::pending};  // Who sees a run's end first makes it `done`.
  std::weak_ptr<ContextState> home_;
  std::shared_ptr<const Lane> lane_;  // Null for work of the host.
  std::uint64_t asked_ = 0;           // The run that it is to be, where one at a time is asked for.
  std::uint64_t run_ = 0;             // Set before the phase is `launched`.
  std::string label_;
  std::optional<Error> error_;  // Set before the phase is `failed` or `cancelled`, and read only then.
  std::mutex mutex_;            // Held by who decides.
  using Clock = std::chrono::steady_clock;
  std::atomic<Clock::rep> submitted_{0};
  std::atomic<Clock::rep> launched_{0};
  mutable std::atomic<Clock::rep> finished_{0};  // 0 until somebody saw it.
};

/// A counted handle to a Submission.
class SubmissionPtr {
 public:
  SubmissionPtr() noexcept = default;
  /// Takes a count that the caller has.
  explicit SubmissionPtr(Submission* taken) noexcept : submission_(taken) {}
  SubmissionPtr(const SubmissionPtr& other) noexcept : submission_(other.submission_) {
    if (submission_ != nullptr) submission_->share();
  }
  SubmissionPtr(SubmissionPtr&& other) noexcept : submission_(std::exchange(other.submission_, nullptr)) {}
  SubmissionPtr& operator=(SubmissionPtr other) noexcept {
    std::swap(submission_, other.submission_);
    return *this;
  }
  ~SubmissionPtr() {
    if (submission_ != nullptr) submission_->drop();
  }

  [[nodiscard]] Submission* get() const noexcept { return submission_; }
  Submission* operator->() const noexcept { return submission_; }
  Submission& operator*() const noexcept { return *submission_; }
  explicit operator bool() const noexcept { return submission_ != nullptr; }

 private:
  Submission* submission_ = nullptr;
};

/// Makes completions for the files that submit work.
struct CompletionAccess {
  [[nodiscard]] static Completion make(const SubmissionPtr& submission) noexcept {
    submission->share();
    return Completion(submission.get());
  }
  /// Null for work that is done.
  [[nodiscard]] static Submission* submission(const Completion& completion) noexcept { return completion.submission_; }
};

/// The error of work that does not run because what it follows came to `error`.
[[nodiscard]] Error stopped_by(const Error& error);

}  // namespace weft
