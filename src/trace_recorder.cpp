#include "trace_recorder.h"

#include "device/process_state.h"
#include "refusal.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <new>
#include <stdexcept>
#include <unistd.h>
#include <utility>

namespace weft {

namespace {

std::uint64_t thread_number() noexcept {
  thread_local const auto number = static_cast<std::uint64_t>(::gettid());
  return number;
}

}  // namespace

void TraceRecorder::start(const TraceOptions& options) {
  if (options.capacity == 0) refuse("The capacity of the trace is 0; it keeps at least 1 event.");
  check(process_status(), "trace requests");  // Before a lock that a thread which is gone may hold.
  const auto shortage = [&] {
    return Error(ErrorCode::out_of_memory,
                 fmt::format("There is no memory for a trace of {} events.", options.capacity));
  };
  Ring ring;
  try {
    ring.entries.resize(options.capacity);
  } catch (const std::bad_alloc&) {
    throw shortage();
  } catch (const std::length_error&) {
    throw shortage();
  }
  const std::lock_guard lock(mutex_);
  if (!ring_.entries.empty()) throw Error(ErrorCode::busy, "The context is being traced already.");
  ring.begin = std::chrono::steady_clock::now();
  ring_ = std::move(ring);
  is_on_.store(true, std::memory_order_relaxed);
}

TraceRecorder::Ring TraceRecorder::take() noexcept {
  if (process_state() != ProcessState::running) return {};
  const std::lock_guard lock(mutex_);
  is_on_.store(false, std::memory_order_relaxed);
  return std::exchange(ring_, {});
}

void TraceRecorder::discard() noexcept { static_cast<void>(take()); }

Trace TraceRecorder::stop() {
  const Ring ring = take();
  const std::size_t capacity = ring.entries.size();
  Trace trace;
  if (ring.recorded > capacity) trace.dropped = ring.recorded - capacity;
  trace.events.reserve(ring.recorded - trace.dropped);
  for (std::uint64_t i = trace.dropped; i < ring.recorded; ++i) {
    const Entry& entry = ring.entries[i % capacity];
    trace.events.push_back({.kind = entry.kind,
                            .failed = entry.outcome == TraceOutcome::failed,
                            .cancelled = entry.outcome == TraceOutcome::cancelled,
                            .graph = entry.track->graph,
                            .model = entry.track->model,
                            .slot = entry.track->slot,
                            .run = entry.run,
                            .patched = entry.patched,
                            .thread = entry.thread,
                            .time = entry.time - ring.begin});
  }
  return trace;
}

void TraceRecorder::enter(TraceEventKind kind, const std::shared_ptr<const TraceTrack>& track, std::uint64_t run,
                          TraceOutcome outcome, std::uint32_t patched) noexcept {
  if (process_state() != ProcessState::running) return;
  const std::uint64_t thread = thread_number();
  std::shared_ptr<const TraceTrack> overwritten;  // May be the last of it; goes outside the lock.
  const std::lock_guard lock(mutex_);
  if (ring_.entries.empty()) return;
  Entry& entry = ring_.entries[ring_.recorded++ % ring_.entries.size()];
  overwritten = std::exchange(entry.track, track);
  entry.run = run;
  entry.thread = thread;
  entry.time =
      std::chrono::steady_clock::now();  // Within the lock, so that the order of events is that of their times.
  entry.kind = kind;
  entry.outcome = outcome;
  entry.patched = patched;
}

}  // namespace weft
