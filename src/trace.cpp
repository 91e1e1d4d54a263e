#include "context_state.h"
#include "refusal.h"
#include <weft/error.h>
#include <weft/trace.h>

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include <map>
#include <string>
#include <string_view>
#include <unistd.h>
#include <utility>

namespace weft {

namespace {

using Json = nlohmann::ordered_json;

// The trace event format counts in microseconds.
double microseconds(std::chrono::nanoseconds time) { return std::chrono::duration<double, std::micro>(time).count(); }

/// Writes the events of one trace; see the Trace Event Format of Chrome: "M" names, "X" is a span, "i" an instant.
class TraceWriter {
 public:
  explicit TraceWriter(const Trace& trace) {
    put({{"name", "process_name"}, {"ph", "M"}, {"pid", pid_}, {"tid", 0}, {"args", {{"name", "weft"}}}});
    for (const TraceEvent& event : trace.events) write(event);
    for (const auto& [slot, track] : tracks_) {
      if (track.submit != nullptr) put_instant(track, *track.submit);  // Still in flight.
    }
  }

  [[nodiscard]] Json events() && { return std::move(events_); }

 private:
  struct Track {
    int tid = 0;
    const TraceEvent* submit = nullptr;  // Of the run that is not over.
  };

  void put(Json event) { events_.push_back(std::move(event)); }

  Track& track_of(const TraceEvent& event) {
    const auto [found, is_new] = tracks_.try_emplace({event.model, event.slot});
    Track& track = found->second;
    if (is_new) {
      track.tid = static_cast<int>(tracks_.size());
      const Json name = fmt::format("{}, slot {} (as the host sees it)", event.graph, event.slot);
      put({{"name", "thread_name"}, {"ph", "M"}, {"pid", pid_}, {"tid", track.tid}, {"args", {{"name", name}}}});
      put({{"name", "thread_sort_index"},
           {"ph", "M"},
           {"pid", pid_},
           {"tid", track.tid},
           {"args", {{"sort_index", track.tid}}}});
    }
    return track;
  }

  [[nodiscard]] Json base(const Track& track, const TraceEvent& event, std::string name, const char* phase) const {
    return {{"name", std::move(name)},        {"cat", "weft"}, {"ph", phase},
            {"ts", microseconds(event.time)}, {"pid", pid_},   {"tid", track.tid}};
  }

  [[nodiscard]] static Json arguments(const TraceEvent& event) {
    return {{"graph", event.graph}, {"slot", event.slot}, {"run", event.run}, {"thread", event.thread}};
  }

  void put_instant(const Track& track, const TraceEvent& event) {
    Json instant = base(track, event, std::string(to_string(event.kind)), "i");
    instant["s"] = "t";  // Of the track, not of the whole process.
    instant["args"] = arguments(event);
    if (event.patched > 0) instant["args"]["patched"] = event.patched;
    put(std::move(instant));
  }

  void put_span(const Track& track, const TraceEvent& submit, const TraceEvent& finish) {
    const char* outcome = finish.failed ? "failed" : finish.cancelled ? "cancelled" : "finished";
    Json span = base(track, submit, fmt::format("run {}", finish.run), "X");
    span["dur"] = microseconds(finish.time - submit.time);
    span["args"] = arguments(submit);
    span["args"]["run"] = finish.run;
    span["args"]["finish_thread"] = finish.thread;
    span["args"]["outcome"] = outcome;
    span["args"]["failed"] = finish.failed;
    span["args"]["cancelled"] = finish.cancelled;
    put(std::move(span));
  }

  // The runs of a slot follow one another: spans on one track are never mixed.
  void write(const TraceEvent& event) {
    Track& track = track_of(event);
    if (event.kind == TraceEventKind::submit) {
      if (track.submit != nullptr) put_instant(track, *track.submit);
      track.submit = &event;
    } else if (event.kind == TraceEventKind::finish && track.submit != nullptr && track.submit->run == event.run) {
      put_span(track, *std::exchange(track.submit, nullptr), event);
    } else {
      put_instant(track, event);
    }
  }

  const int pid_ = static_cast<int>(::getpid());
  std::map<std::pair<std::uint64_t, std::uint32_t>, Track> tracks_;  // By model and slot.
  Json events_ = Json::array();
};

}  // namespace

std::string_view to_string(TraceEventKind kind) noexcept {
  switch (kind) {
    case TraceEventKind::acquire:
      return "acquire";
    case TraceEventKind::submit:
      return "submit";
    case TraceEventKind::launch:
      return "launch";
    case TraceEventKind::finish:
      return "finish";
  }
  return "unknown";
}

std::string to_json(const Trace& trace) {
  const Json json{
      {"displayTimeUnit", "ns"},
      {"otherData", {{"clock", "the host's steady clock, from the start of the trace"}, {"dropped", trace.dropped}}},
      {"traceEvents", TraceWriter(trace).events()}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + '\n';
}

TraceRecording::TraceRecording(std::shared_ptr<ContextState> context) noexcept : context_(std::move(context)) {}

TraceRecording::TraceRecording(TraceRecording&&) noexcept = default;

TraceRecording& TraceRecording::operator=(TraceRecording&& other) noexcept {
  TraceRecording taken(std::move(other));  // Takes this one's away with it.
  std::swap(context_, taken.context_);
  return *this;
}

TraceRecording::~TraceRecording() {
  if (context_ != nullptr) context_->trace()->discard();
}

Trace TraceRecording::stop() && {
  if (context_ == nullptr) refuse("The recording of a trace is moved from.");
  const std::shared_ptr<ContextState> context = std::exchange(context_, nullptr);
  return context->trace()->stop();
}

}  // namespace weft
