#pragma once

#include "completion_word.h"
#include "device/device_api.h"
#include "device/handles.h"
#include "pinned_buffer.h"
#include "run_log.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace weft {

/// Room of a completion word in pinned memory: a line of its own.
inline constexpr std::uint64_t kWordBytes = 128;

/// How a lane is named and waited for.
struct LaneOptions {
  std::string name;                                                ///< Completes "running <name>" in errors.
  std::chrono::nanoseconds spin = std::chrono::microseconds(200);  ///< Waits spin for so long before they sleep.
  /// A run that takes longer has hung. For lanes with one run in flight.
  std::optional<std::chrono::nanoseconds> hang_after = {};
  std::shared_ptr<RunLog> log = {};  ///< Of a slot's runs.
};

/// A stream whose runs are counted: each ends with a node that writes its number to the lane's completion word.
///
/// One thread at a time launches on it; the rest is thread-safe. Keeps the word's page alive, so it must outlive what
/// is queued on it: who gives one up while it runs retires it (ContextState::retire).
class Lane {
 public:
  using Clock = std::chrono::steady_clock;

  /// `page` holds the word.
  Lane(const std::shared_ptr<DeviceApi>& api, std::shared_ptr<const PinnedBuffer> page, std::byte* word,
       LaneOptions options);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  [[nodiscard]] StreamHandle stream() const noexcept { return stream_.get(); }
  [[nodiscard]] std::chrono::nanoseconds spin() const noexcept { return options_.spin; }
  /// Null for what is no slot's.
  [[nodiscard]] RunLog* log() const noexcept { return options_.log.get(); }

  /// Runs `enqueue`, which puts one run on the stream or throws, and returns the run's number.
  template <class Enqueue>
  std::uint64_t run(Enqueue&& enqueue) {
    launched_at_.store(Clock::now().time_since_epoch().count(), std::memory_order_relaxed);
    std::forward<Enqueue>(enqueue)();
    const std::uint64_t run = launched() + 1;
    launched_.store(run, std::memory_order_release);
    return run;
  }
  [[nodiscard]] std::uint64_t launched() const noexcept { return launched_.load(std::memory_order_acquire); }
  /// When the last launch began.
  [[nodiscard]] Clock::rep launched_at() const noexcept { return launched_at_.load(std::memory_order_relaxed); }

  /// Whether `run` has finished; if so, what it wrote is readable.
  [[nodiscard]] bool has_finished(std::uint64_t run) const noexcept { return word_.reached(run); }
  [[nodiscard]] bool has_drained() const noexcept { return has_finished(launched()); }
  /// Asks the device about a run that takes long. Errors: `device_lost`; `internal` if the stream drained without it;
  /// `failed` if it has hung.
  void require_progress(std::uint64_t run) const;
  /// Returns when the last run has finished or is found to hang, at once for a lane without a limit.
  void wait_or_hang() const noexcept;
  /// Whether a run was found to hang. Nothing that waits for the lane's stream can be waited for then.
  [[nodiscard]] bool has_hung() const noexcept { return has_hung_.load(std::memory_order_relaxed); }
  /// ok until the device is lost. Asks no driver.
  [[nodiscard]] DeviceStatus health() const noexcept { return api_.health(); }

  /// Makes what is queued on `later` from now on follow all that is queued here.
  [[nodiscard]] DeviceStatus precede(StreamHandle later) const noexcept;

  /// For the contexts of errors.
  [[nodiscard]] std::string describe() const { return "running " + options_.name; }

 private:
  DeviceApi& api_;  // Kept by the stream's handle.
  UniqueStream stream_;
  UniqueEvent event_;
  std::shared_ptr<const PinnedBuffer> page_;
  CompletionWord word_;
  LaneOptions options_;
  std::atomic<std::uint64_t> launched_{0};  // Written by who launches, as the next.
  std::atomic<Clock::rep> launched_at_{0};
  mutable std::atomic<bool> has_hung_{false};
};

}  // namespace weft
