#include "trace_recorder.h"

#include "catch.h"
#include "runtime/memory_work.h"
#include <weft/context.h>
#include <weft/error.h>
#include <weft/trace.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// The recorder and what is written of a trace; what requests record is tested in model/request_trace_test.cpp, and the
// traces of seam calls, which are another thing, in model/trace_test.cpp.

namespace weft::test {
namespace {

using Json = nlohmann::json;

std::shared_ptr<const TraceTrack> make_track(std::uint64_t model, std::string graph, std::uint32_t slot) {
  return std::make_shared<const TraceTrack>(TraceTrack{model, std::move(graph), slot});
}

std::vector<std::uint64_t> runs(const Trace& trace) {
  std::vector<std::uint64_t> numbers;
  for (const TraceEvent& event : trace.events) numbers.push_back(event.run);
  return numbers;
}

TraceEvent event_of(TraceEventKind kind, std::uint64_t run, std::int64_t nanoseconds) {
  TraceEvent event;
  event.kind = kind;
  event.graph = "digits";
  event.model = 7;
  event.run = run;
  event.thread = 40;
  event.time = std::chrono::nanoseconds(nanoseconds);
  return event;
}

/// The events of this phase: "M" names, "X" spans, "i" instants.
std::vector<Json> of_phase(const Json& json, const std::string& phase) {
  std::vector<Json> events;
  for (const Json& event : json.at("traceEvents")) {
    if (event.at("ph") == phase) events.push_back(event);
  }
  return events;
}

}  // namespace

TEST_CASE("A bounded trace keeps 5 events and reports how many it dropped", "[runtime][R39][T16]") {
  TraceRecorder recorder;
  recorder.start({.capacity = 5});
  const auto track = make_track(1, "g", 3);
  for (std::uint64_t run = 1; run <= 12; ++run) recorder.record(TraceEventKind::submit, track, run);
  const Trace trace = recorder.stop();
  CHECK(runs(trace) == std::vector<std::uint64_t>{8, 9, 10, 11, 12});
  CHECK(trace.dropped == 7);
  CHECK(std::ranges::is_sorted(trace.events, {}, &TraceEvent::time));
}

TEST_CASE("A trace with room drops nothing", "[runtime][R39]") {
  TraceRecorder recorder;
  recorder.start({.capacity = 5});
  for (std::uint64_t run = 1; run <= 5; ++run) recorder.record(TraceEventKind::launch, make_track(1, "g", 0), run);
  const Trace trace = recorder.stop();
  CHECK(runs(trace) == std::vector<std::uint64_t>{1, 2, 3, 4, 5});
  CHECK(trace.dropped == 0);
}

TEST_CASE("An event tells kind outcome graph slot run and thread", "[runtime][R39]") {
  TraceRecorder recorder;
  recorder.start({});
  const auto track = make_track(4, "encoder", 2);
  recorder.record(TraceEventKind::acquire, track, 0);
  recorder.record(TraceEventKind::finish, track, 6, TraceOutcome::failed);
  std::thread([&] { recorder.record(TraceEventKind::finish, track, 7, TraceOutcome::cancelled); }).join();
  const Trace trace = recorder.stop();
  REQUIRE(trace.events.size() == 3);
  for (const TraceEvent& event : trace.events) {
    CHECK(event.graph == "encoder");
    CHECK(event.model == 4);
    CHECK(event.slot == 2);
    CHECK(event.time >= std::chrono::nanoseconds(0));
  }
  CHECK(trace.events[0].kind == TraceEventKind::acquire);
  CHECK(!trace.events[0].failed);
  CHECK(!trace.events[0].cancelled);
  CHECK(trace.events[1].run == 6);
  CHECK(trace.events[1].failed);
  CHECK(!trace.events[1].cancelled);
  CHECK(trace.events[2].run == 7);
  CHECK(!trace.events[2].failed);
  CHECK(trace.events[2].cancelled);
  CHECK(trace.events[1].thread == trace.events[0].thread);
  CHECK(trace.events[2].thread != trace.events[0].thread);
}

TEST_CASE("A trace without room is refused", "[runtime][R39]") {
  const Context context = open_context();
  const Error error = refusal([&] { static_cast<void>(context.start_trace({.capacity = 0})); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.what(), "The capacity of the trace is 0; it keeps at least 1 event."));
  static_cast<void>(context.start_trace().stop());
}

TEST_CASE("A trace that does not fit in memory is refused", "[runtime][R39]") {
  const Context context = open_context();
  const std::size_t capacity = std::numeric_limits<std::size_t>::max();
  const Error error = refusal([&] { static_cast<void>(context.start_trace({.capacity = capacity})); });
  CHECK(error.code() == ErrorCode::out_of_memory);
  CHECK(contains(error.what(), "There is no memory for a trace of " + std::to_string(capacity) + " events."));
  static_cast<void>(context.start_trace().stop());
}

TEST_CASE("A context has one trace at a time", "[runtime][R39]") {
  const Context context = open_context();
  TraceRecording recording = context.start_trace({.capacity = 5});
  const Error error = refusal([&] { static_cast<void>(context.start_trace({.capacity = 5})); });
  CHECK(error.code() == ErrorCode::busy);
  CHECK(contains(error.what(), "The context is being traced already."));
  TraceRecording other = open_context().start_trace();  // Of another context.
  static_cast<void>(std::move(recording).stop());
  recording = context.start_trace();
  recording = std::move(other);  // Ends this context's.
  static_cast<void>(context.start_trace().stop());
  { const TraceRecording dropped = context.start_trace(); }
  static_cast<void>(context.start_trace().stop());
}

TEST_CASE("A recording that is moved from refuses to stop", "[runtime][R39]") {
  TraceRecording recording = open_context().start_trace();
  const TraceRecording taken = std::move(recording);
  // The use after the move is what is tested.
  const Error error = refusal([&] { static_cast<void>(std::move(recording).stop()); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.what(), "The recording of a trace is moved from."));
}

TEST_CASE("Without a trace nothing is recorded", "[runtime][R39]") {
  TraceRecorder recorder;
  const auto track = make_track(1, "g", 0);
  recorder.record(TraceEventKind::submit, track, 1);
  recorder.start({.capacity = 5});
  recorder.record(TraceEventKind::submit, track, 2);
  const Trace trace = recorder.stop();
  CHECK(runs(trace) == std::vector<std::uint64_t>{2});
  recorder.record(TraceEventKind::submit, track, 3);
  CHECK(track.use_count() == 1);
  recorder.start({.capacity = 5});
  const Trace second = recorder.stop();
  CHECK(second.events.empty());
  CHECK(second.dropped == 0);
}

TEST_CASE("Threads record while a trace starts and stops and none is lost or torn", "[runtime][R39]") {
  constexpr std::uint64_t kEach = 2000;
  constexpr std::uint32_t kThreads = 4;
  TraceRecorder recorder;
  recorder.start({.capacity = 64});
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([&recorder, i] {
      const auto track = make_track(i, std::to_string(i), i);
      for (std::uint64_t run = 1; run <= kEach; ++run) recorder.record(TraceEventKind::finish, track, run);
    });
  }
  std::uint64_t seen = 0;
  bool is_whole = true;
  const auto count = [&](const Trace& trace) {
    seen += trace.events.size() + trace.dropped;
    for (const TraceEvent& event : trace.events)
      is_whole = is_whole && event.model == event.slot && event.graph == std::to_string(event.slot);
    is_whole = is_whole && std::ranges::is_sorted(trace.events, {}, &TraceEvent::time);
  };
  for (int i = 0; i < 20; ++i) {
    count(recorder.stop());
    recorder.start({.capacity = 64});
  }
  for (std::thread& thread : threads) thread.join();
  count(recorder.stop());
  CHECK(is_whole);
  CHECK(seen <= kEach * kThreads);
}

TEST_CASE("A trace is written as spans and instants on a track for each slot", "[runtime][R39]") {
  Trace trace;
  trace.dropped = 3;
  trace.events = {event_of(TraceEventKind::acquire, 0, 1'000), event_of(TraceEventKind::submit, 5, 2'500),
                  event_of(TraceEventKind::launch, 5, 3'000), event_of(TraceEventKind::finish, 5, 10'000)};
  TraceEvent other = event_of(TraceEventKind::submit, 1, 11'000);
  other.slot = 1;
  trace.events.push_back(other);
  other = event_of(TraceEventKind::finish, 1, 12'000);
  other.slot = 1;
  other.failed = true;
  other.thread = 41;
  trace.events.push_back(other);
  const Json json = Json::parse(to_json(trace));
  CHECK(json.at("otherData").at("dropped") == 3);
  CHECK(contains(json.at("otherData").at("clock").get<std::string>(), "host"));

  const std::vector<Json> spans = of_phase(json, "X");
  REQUIRE(spans.size() == 2);
  CHECK(spans[0].at("name") == "run 5");
  CHECK(spans[0].at("ts") == 2.5);
  CHECK(spans[0].at("dur") == 7.5);
  CHECK(spans[0].at("args").at("outcome") == "finished");
  CHECK(spans[0].at("args").at("graph") == "digits");
  CHECK(spans[0].at("args").at("slot") == 0);
  CHECK(spans[0].at("args").at("run") == 5);
  CHECK(spans[0].at("args").at("thread") == 40);
  CHECK(spans[1].at("ts") == 11);
  CHECK(spans[1].at("dur") == 1);
  CHECK(spans[1].at("args").at("outcome") == "failed");
  CHECK(spans[1].at("args").at("finish_thread") == 41);
  CHECK(spans[0].at("tid") != spans[1].at("tid"));
  CHECK(spans[0].at("pid") == spans[1].at("pid"));

  const std::vector<Json> instants = of_phase(json, "i");
  REQUIRE(instants.size() == 2);
  CHECK(instants[0].at("name") == "acquire");
  CHECK(instants[1].at("name") == "launch");
  CHECK(instants[1].at("tid") == spans[0].at("tid"));
  CHECK(instants[1].at("s") == "t");

  std::vector<Json> names;
  for (const Json& name : of_phase(json, "M")) {
    if (name.at("name") == "thread_name") names.push_back(name);
  }
  REQUIRE(names.size() == 2);
  CHECK(names[0].at("tid") == spans[0].at("tid"));
  CHECK(names[0].at("args").at("name") == "digits, slot 0 (as the host sees it)");
  CHECK(names[1].at("tid") == spans[1].at("tid"));
  CHECK(names[1].at("args").at("name") == "digits, slot 1 (as the host sees it)");
}

TEST_CASE("Halves of runs whose other half the trace has not are instants", "[runtime][R39]") {
  Trace trace;
  trace.events = {event_of(TraceEventKind::finish, 4, 1'000), event_of(TraceEventKind::submit, 5, 2'000)};
  const Json json = Json::parse(to_json(trace));
  CHECK(of_phase(json, "X").empty());
  const std::vector<Json> instants = of_phase(json, "i");
  REQUIRE(instants.size() == 2);
  CHECK(instants[0].at("name") == "finish");
  CHECK(instants[0].at("args").at("run") == 4);
  CHECK(instants[1].at("name") == "submit");
  CHECK(instants[1].at("args").at("run") == 5);
}

TEST_CASE("A graph whose title is no text is written with the bytes that are", "[runtime][R39]") {
  Trace trace;
  trace.events = {event_of(TraceEventKind::acquire, 0, 0)};
  trace.events[0].graph = "a\xff\"b";
  const Json json = Json::parse(to_json(trace));
  const std::vector<Json> instants = of_phase(json, "i");
  REQUIRE(instants.size() == 1);
  CHECK(instants[0].at("args").at("graph") == "a\xef\xbf\xbd\"b");
}

}  // namespace weft::test
