#pragma once

#include <weft/deadline.h>
#include <weft/error.h>
#include <weft/export.h>

#include <chrono>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <optional>

namespace weft {

class Completion;
class Submission;

/// How work stands.
enum class CompletionStatus : std::uint8_t {
  pending,    ///< Waits for the host, is queued, or runs.
  done,       ///< Done: what it wrote can be read.
  failed,     ///< It failed, or what it follows did, and then it did not run.
  cancelled,  ///< It was cancelled, or what it follows was, and then it did not run.
};

/// When work was seen to reach its stages, by this host's clock: the device's own times are not asked for. `finished`
/// is when somebody first saw that it was, which may be long after.
struct RunProfile {
  using Time = std::chrono::steady_clock::time_point;
  std::optional<Time> submitted = {};
  std::optional<Time> launched = {};  ///< The launch began; when it was submitted, unless it waited for the host.
  std::optional<Time> finished = {};
};

/// Waits for a completion in a coroutine; see Completion::operator co_await.
class CompletionAwaiter;

/// When work that was submitted is done, and what it wrote can be read.
///
/// A shared handle: copies mean the same work. Thread-safe. Keeps alive what tells of the work, not the memory that the
/// work uses; dropping it neither stops nor frees anything.
class WEFT_API Completion {
 public:
  /// Of work that is done.
  Completion() noexcept = default;
  Completion(const Completion& other) noexcept;
  Completion(Completion&& other) noexcept;
  Completion& operator=(const Completion& other) noexcept;
  Completion& operator=(Completion&& other) noexcept;
  ~Completion();

  /// How the work stands. Never waits, takes no lock and asks no driver: a device that was lost while nobody asked it
  /// shows here once a wait, a submission or the context's watcher has met the error.
  [[nodiscard]] CompletionStatus poll() const noexcept;
  /// Whether nothing more will happen: `poll` is not `pending`.
  [[nodiscard]] bool is_done() const noexcept { return poll() != CompletionStatus::pending; }

  /// Waits for it: true when it is done, or false when the deadline passed first (nothing changed then). A deadline in
  /// the past polls. Errors: `failed`, with the cause that all waiters share; `cancelled`; `device_lost`; `internal` if
  /// the device drained without completing the work. Cost: no allocation, no lock; spins, then sleeps between looks.
  [[nodiscard]] bool wait(Deadline deadline) const;
  /// Returns when the work is done, throws its error when it came to one (see `wait`), and `busy` while it is pending.
  void result() const;
  /// The error that the work came to: empty while it is pending and when it is done.
  [[nodiscard]] std::optional<Error> error() const;

  /// Has `callback` called once, when the work is no longer pending: at once, on this thread, when it is not now, and
  /// then what it throws passes on; else on the context's watcher thread, which this starts. There it must not wait for
  /// long, nor for work that waits for the host, which that thread alone launches, and what it throws is dropped,
  /// logged and counted. While the last handle of the context goes, which waits for its work, this waits too. Errors:
  /// `invalid` for an empty callback; `out_of_memory` when the thread cannot be started; `device_lost` once the process
  /// ends.
  void then(std::function<void()> callback) const;
  /// `co_await completion` suspends until the work is no longer pending and has the outcome of `result`. The coroutine
  /// goes on where `then` calls back, and must not be destroyed while it is suspended.
  [[nodiscard]] CompletionAwaiter operator co_await() const noexcept;

  /// Stops the work: true if its outcome is `cancelled` from now on, false when it had one before. Before its launch
  /// the work is not launched. After its launch it runs on, its results are refused, and its slot is handed out once it
  /// has drained. What follows it and has not been launched is cancelled, too. Thread-safe.
  bool cancel() const;

  [[nodiscard]] RunProfile profile() const noexcept;

 private:
  friend struct CompletionAccess;
  /// Takes one count of `submission`.
  explicit Completion(Submission* submission) noexcept : submission_(submission) {}
  Submission* submission_ = nullptr;  // Counted; null for work that is done.
};

class CompletionAwaiter {
 public:
  explicit CompletionAwaiter(Completion completion) noexcept : completion_(std::move(completion)) {}
  [[nodiscard]] bool await_ready() const noexcept { return completion_.is_done(); }
  // Nothing of this object is touched once the callback may run: the coroutine goes on there, and may end.
  void await_suspend(std::coroutine_handle<> waiting) const {
    Completion(completion_).then([waiting] { waiting(); });
  }
  void await_resume() const { completion_.result(); }

 private:
  Completion completion_;
};

inline CompletionAwaiter Completion::operator co_await() const noexcept { return CompletionAwaiter(*this); }

}  // namespace weft
