#pragma once

#include <weft/export.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

class ContextState;

struct TraceOptions {
  std::size_t capacity = 65536;  ///< Events that are kept: the newest. 64 bytes each, allocated at the start.
};

enum class TraceEventKind : std::uint8_t {
  acquire,  ///< A slot was handed out.
  submit,   ///< A request was accepted.
  launch,   ///< Its graph was launched, or its launch handed to the thread that launches.
  finish,   ///< The host saw that it was over: at that time or before.
};

/// "acquire", "submit", "launch", "finish".
[[nodiscard]] WEFT_API std::string_view to_string(TraceEventKind kind) noexcept;

/// One step of a request, as the host saw it: no time is taken on the device.
struct TraceEvent {
  TraceEventKind kind = TraceEventKind::acquire;
  bool failed = false;      ///< Of `finish`.
  bool cancelled = false;   ///< Of `finish`.
  std::string graph;        ///< Title of the slot's graph.
  std::uint64_t model = 0;  ///< Tells prepared models apart whose graphs have the same title.
  std::uint32_t slot = 0;
  std::uint64_t run = 0;             ///< Number of the slot's run, from 1; 0 before it has one.
  std::uint64_t patched = 0;         ///< Of `launch`: nodes that were set since a late argument had changed.
  std::uint64_t thread = 0;          ///< The system's number of the thread that saw it.
  std::chrono::nanoseconds time{0};  ///< Since the start of the trace, by the steady clock.
  friend bool operator==(const TraceEvent&, const TraceEvent&) = default;
};

/// What a trace has kept: a value.
struct Trace {
  std::vector<TraceEvent> events;  ///< The newest, in the order in which they were recorded.
  std::uint64_t dropped = 0;       ///< Older ones that had to make room.
};

/// The trace as Chrome trace JSON, which Perfetto (ui.perfetto.dev) and chrome://tracing show: a track for each slot,
/// on it a span for each run from `submit` to `finish`, and the other events as instants. All times are the host's.
[[nodiscard]] WEFT_API std::string to_json(const Trace& trace);

/// A trace that is being recorded. Move-only; used by one thread at a time. Dropping it ends the trace and what it has
/// kept. Keeps the context alive. A moved-from object refuses `stop` with `invalid`.
class WEFT_API TraceRecording {
 public:
  TraceRecording(TraceRecording&&) noexcept;
  TraceRecording& operator=(TraceRecording&&) noexcept;
  ~TraceRecording();

  /// Ends the trace. Errors: none but for a moved-from object. Cost: allocates for each event.
  [[nodiscard]] Trace stop() &&;

 private:
  friend class Context;
  explicit TraceRecording(std::shared_ptr<ContextState> context) noexcept;
  std::shared_ptr<ContextState> context_;
};

}  // namespace weft
