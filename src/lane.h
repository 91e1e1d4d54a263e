#pragma once

#include "completion_word.h"
#include "device/device_api.h"
#include "device/handles.h"
#include "pinned_buffer.h"
#include <weft/completion.h>
#include <weft/deadline.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace weft {

/// Room of a completion word in pinned memory: a line of its own.
inline constexpr std::uint64_t kWordBytes = 128;

/// A stream whose runs are counted: each ends with a node that writes its number to the lane's completion word.
///
/// One thread at a time launches on it; the rest is thread-safe. Keeps the word's page alive, so it must outlive what
/// is queued on it: who gives one up while it runs retires it (ContextState::retire).
class Lane {
 public:
  /// `page` holds the word. `name` completes "running <name>" in errors; waits spin for `spin` before they sleep.
  Lane(const std::shared_ptr<DeviceApi>& api, std::shared_ptr<const PinnedBuffer> page, std::byte* word,
       std::string name, std::chrono::nanoseconds spin);
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  [[nodiscard]] StreamHandle stream() const noexcept { return stream_.get(); }

  /// Runs `enqueue`, which puts one run on the stream or throws, and returns the run's number.
  template <class Enqueue>
  std::uint64_t run(Enqueue&& enqueue) {
    std::forward<Enqueue>(enqueue)();
    const std::uint64_t run = launched() + 1;
    launched_.store(run, std::memory_order_release);
    return run;
  }
  [[nodiscard]] std::uint64_t launched() const noexcept { return launched_.load(std::memory_order_acquire); }

  /// Whether `run` has finished; if so, what it wrote is readable.
  [[nodiscard]] bool has_finished(std::uint64_t run) const noexcept { return word_.reached(run); }
  [[nodiscard]] bool has_drained() const noexcept { return has_finished(launched()); }
  /// As Completion::wait.
  [[nodiscard]] bool wait(std::uint64_t run, Deadline deadline) const;
  /// Asks the device about a run that takes long. Errors: `device_lost`; `internal` if the stream drained without it.
  void require_progress(std::uint64_t run) const;

  /// Makes what is queued on `later` from now on follow all that is queued here.
  [[nodiscard]] DeviceStatus precede(StreamHandle later) const noexcept;

  /// For the contexts of errors.
  [[nodiscard]] std::string describe() const { return "running " + name_; }

 private:
  DeviceApi& api_;  // Kept by the stream's handle.
  UniqueStream stream_;
  UniqueEvent event_;
  std::shared_ptr<const PinnedBuffer> page_;
  CompletionWord word_;
  std::string name_;
  std::chrono::nanoseconds spin_;
  std::atomic<std::uint64_t> launched_{0};  // Written by who launches.
};

/// Makes completions for the files that submit work.
struct CompletionAccess {
  [[nodiscard]] static Completion make(std::shared_ptr<const Lane> lane, std::uint64_t run) noexcept {
    return {std::move(lane), run};
  }
  /// Null for work that was never in flight.
  [[nodiscard]] static const std::shared_ptr<const Lane>& lane(const Completion& completion) noexcept {
    return completion.lane_;
  }
};

}  // namespace weft
