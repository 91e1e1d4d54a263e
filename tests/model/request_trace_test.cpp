#include "catch.h"
#include "support/requests.h"
#include <weft/completion_source.h>
#include <weft/weft.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iterator>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// What requests leave in a context's trace. The recorder alone is tested in runtime/trace_recorder_test.cpp; traces of
// seam calls, which are another thing, in model/trace_test.cpp.

namespace weft::test {
namespace {

using Kind = TraceEventKind;

constexpr std::uint64_t kCount = 64;

std::vector<Kind> kinds(const Trace& trace) {
  std::vector<Kind> all;
  for (const TraceEvent& event : trace.events) all.push_back(event.kind);
  return all;
}

/// The events of one slot.
std::vector<Kind> kinds(const Trace& trace, std::uint32_t slot) {
  std::vector<Kind> all;
  for (const TraceEvent& event : trace.events) {
    if (event.slot == slot) all.push_back(event.kind);
  }
  return all;
}

}  // namespace

TEST_CASE("A request is traced from its acquire to its finish", "[model][R39]") {
  XorModel model(kCount);
  PreparedModel prepared = model.fragment.prepare();
  const Context& context = prepared.context();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  static_cast<void>(infer(prepared, input));
  TraceRecording recording = context.start_trace({.capacity = 1000});
  static_cast<void>(infer(prepared, input));
  static_cast<void>(infer(prepared, input));
  const Trace trace = std::move(recording).stop();
  static_cast<void>(infer(prepared, input));
  const std::vector<Kind> one{Kind::acquire, Kind::submit, Kind::launch, Kind::finish};
  std::vector<Kind> both = one;
  both.insert(both.end(), one.begin(), one.end());
  CHECK(kinds(trace) == both);
  REQUIRE(trace.events.size() == 8);
  CHECK(trace.dropped == 0);
  for (const TraceEvent& event : trace.events) {
    CHECK(event.graph == prepared.topology().title);
    CHECK(event.slot == 0);
    CHECK(event.model == trace.events[0].model);
    CHECK(!event.failed);
    CHECK(!event.cancelled);
  }
  for (const std::size_t i : {1u, 2u, 3u}) CHECK(trace.events[i].run == 2);
  for (const std::size_t i : {5u, 6u, 7u}) CHECK(trace.events[i].run == 3);
  CHECK(std::ranges::is_sorted(trace.events, {}, &TraceEvent::time));
}

TEST_CASE("A bounded trace of requests keeps the newest 5 events", "[model][R39][T16]") {
  PreparedModel prepared = XorModel(kCount).fragment.prepare();
  TraceRecording recording = prepared.context().start_trace({.capacity = 5});
  for (int i = 0; i < 3; ++i) static_cast<void>(infer(prepared, fresh_bytes(kCount, 1)));
  const Trace trace = std::move(recording).stop();
  CHECK(kinds(trace) == std::vector<Kind>{Kind::finish, Kind::acquire, Kind::submit, Kind::launch, Kind::finish});
  CHECK(trace.dropped == 7);
}

TEST_CASE("The trace of requests opens as a span for each", "[model][R39]") {
  PreparedModel prepared = XorModel(kCount).fragment.prepare({.slots = 2});
  const Context context = prepared.context();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  TraceRecording recording = context.start_trace({.capacity = 1000});
  const std::vector<std::uint8_t> answer = infer(prepared, input);
  const std::string json = to_json(std::move(recording).stop());
  CHECK(answer == xored(input, 0xff));
  const auto written = nlohmann::json::parse(json);
  std::vector<std::string> names;
  for (const auto& event : written.at("traceEvents")) names.push_back(event.at("name").get<std::string>());
  CHECK(std::ranges::count(names, "run 1") == 1);
  CHECK(std::ranges::count(names, "acquire") == 1);
  CHECK(std::ranges::count(names, "launch") == 1);
}

TEST_CASE("Slots and models of one title are told apart", "[model][R39]") {
  XorModel model(kCount);
  PreparedModel first = model.fragment.prepare({.slots = 2});
  PreparedModel second = model.fragment.prepare({.slots = 2});
  TraceRecording recording = first.context().start_trace();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  Inference a = submit(first, input);
  Inference b = submit(first, input);
  Inference c = submit(second, input);
  for (Inference* run : {&a, &b, &c}) static_cast<void>(result(*run));
  const Trace trace = std::move(recording).stop();
  const std::vector<Kind> one{Kind::acquire, Kind::submit, Kind::launch, Kind::finish};
  std::vector<std::uint64_t> models;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == Kind::acquire) models.push_back(event.model);
  }
  REQUIRE(models.size() == 3);
  CHECK(models[0] == models[1]);
  CHECK(models[2] != models[0]);
  CHECK(kinds(trace, 1) == one);
}

TEST_CASE("A run that nobody looks at is finished in the trace before its slot's next", "[model][R39]") {
  PreparedModel prepared = XorModel(kCount).fragment.prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  TraceRecording recording = prepared.context().start_trace();
  static_cast<void>(submit(prepared, input));
  const Completion kept = submit(prepared, input).completion();
  static_cast<void>(infer(prepared, input));
  CHECK(kept.is_done());
  const Trace trace = std::move(recording).stop();
  std::vector<std::pair<Kind, std::uint64_t>> runs;
  for (const TraceEvent& event : trace.events) {
    if (event.kind != Kind::acquire) runs.emplace_back(event.kind, event.run);
  }
  CHECK(runs == std::vector<std::pair<Kind, std::uint64_t>>{{Kind::submit, 1},
                                                            {Kind::launch, 1},
                                                            {Kind::finish, 1},
                                                            {Kind::submit, 2},
                                                            {Kind::launch, 2},
                                                            {Kind::finish, 2},
                                                            {Kind::submit, 3},
                                                            {Kind::launch, 3},
                                                            {Kind::finish, 3}});
}

TEST_CASE("A run whose producer fails or that is cancelled ends so in the trace", "[model][R39]") {
  PreparedModel prepared = XorModel(kCount).fragment.prepare({.slots = 2});
  const Context& context = prepared.context();
  TraceRecording recording = context.start_trace();
  CompletionSource producer(context, "a producer");
  Inference failing = prepared.try_acquire().value().submit(SubmitOptions{.after = {producer.completion()}});
  Inference cancelled = prepared.try_acquire().value().submit(SubmitOptions{.after = {producer.completion()}});
  CHECK(cancelled.completion().cancel());
  producer.fail(std::make_exception_ptr(std::runtime_error("no input")));
  const Error error = refusal([&] { static_cast<void>(failing.wait(in_a_minute())); });
  CHECK(error.code() == ErrorCode::failed);
  const Trace trace = std::move(recording).stop();
  CHECK(kinds(trace, 0) == std::vector<Kind>{Kind::acquire, Kind::submit, Kind::finish});
  CHECK(kinds(trace, 1) == std::vector<Kind>{Kind::acquire, Kind::submit, Kind::finish});
  std::vector<TraceEvent> ends;
  std::ranges::copy_if(trace.events, std::back_inserter(ends),
                       [](const TraceEvent& event) { return event.kind == Kind::finish; });
  REQUIRE(ends.size() == 2);
  CHECK(ends[0].cancelled);
  CHECK(!ends[0].failed);
  CHECK(ends[0].slot == 1);
  CHECK(ends[1].failed);
  CHECK(!ends[1].cancelled);
  CHECK(ends[1].slot == 0);
}

TEST_CASE("A request that is refused ends as failed in the trace", "[model][R39]") {
  PreparedModel prepared = XorModel(kCount).fragment.prepare();
  const Context& context = prepared.context();
  CompletionSource producer(context, "a producer");
  producer.fail(std::make_exception_ptr(std::runtime_error("no input")));
  TraceRecording recording = context.start_trace();
  const Error error = refusal([&] {
    static_cast<void>(prepared.try_acquire().value().submit(SubmitOptions{.after = {producer.completion()}}));
  });
  CHECK(error.code() == ErrorCode::failed);
  const Trace trace = std::move(recording).stop();
  CHECK(kinds(trace) == std::vector<Kind>{Kind::acquire, Kind::submit, Kind::finish});
  REQUIRE(trace.events.size() == 3);
  CHECK(trace.events[2].failed);
}

}  // namespace weft::test
