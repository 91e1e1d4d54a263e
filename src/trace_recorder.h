#pragma once

#include <weft/trace.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace weft {

/// A slot, as traces name it. Shared by the slot and by the events of it that are kept.
struct TraceTrack {
  std::uint64_t model = 0;
  std::string graph;
  std::uint32_t slot = 0;
};

/// How a run ended.
enum class TraceOutcome : std::uint8_t { finished, failed, cancelled };

/// A context's trace, while there is one. Thread-safe. Takes no lock once the process is not running any more (see
/// device/process_state.h).
class TraceRecorder {
 public:
  /// Errors: `invalid` for no capacity; `busy` while there is a trace; `out_of_memory`.
  void start(const TraceOptions& options);
  [[nodiscard]] Trace stop();
  void discard() noexcept;

  /// Cost: one load without a trace; with one, a short lock and no allocation.
  void record(TraceEventKind kind, const std::shared_ptr<const TraceTrack>& track, std::uint64_t run,
              TraceOutcome outcome = TraceOutcome::finished, std::uint32_t patched = 0) noexcept {
    if (is_on_.load(std::memory_order_relaxed)) enter(kind, track, run, outcome, patched);
  }

 private:
  struct Entry {
    std::shared_ptr<const TraceTrack> track;
    std::uint64_t run = 0;
    std::uint64_t thread = 0;
    std::chrono::steady_clock::time_point time;
    TraceEventKind kind = TraceEventKind::acquire;
    TraceOutcome outcome = TraceOutcome::finished;
    std::uint32_t patched = 0;
  };
  /// The oldest stands at `recorded % entries.size()` once that many were recorded.
  struct Ring {
    std::vector<Entry> entries;
    std::uint64_t recorded = 0;
    std::chrono::steady_clock::time_point begin;
  };

  void enter(TraceEventKind kind, const std::shared_ptr<const TraceTrack>& track, std::uint64_t run,
             TraceOutcome outcome, std::uint32_t patched) noexcept;
  [[nodiscard]] Ring take() noexcept;

  std::atomic<bool> is_on_{false};  // Written with mutex_ held.
  std::mutex mutex_;
  Ring ring_;  // Guarded by mutex_; without entries when there is no trace.
};

}  // namespace weft
