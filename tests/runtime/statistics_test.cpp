#include "catch.h"
#include "context_state.h"
#include "counters.h"
#include "device/faults.h"
#include "device/handles.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "lane.h"
#include "pinned_buffer.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/device.h"
#include <weft/context.h>
#include <weft/error.h>
#include <weft/log.h>
#include <weft/statistics.h>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// What a context counts beside its slots, which model/slot_statistics_test.cpp tests.

namespace weft::test {
namespace {

constexpr std::uint64_t kBytes = 96;
constexpr std::uint64_t kNever = std::numeric_limits<std::uint64_t>::max();

/// Slots with these counts.
class CountedSlots final : public SlotSource {
 public:
  explicit CountedSlots(SlotStatistics given) : counts(given) {}
  [[nodiscard]] SlotStatistics statistics() const noexcept override { return counts; }

  SlotStatistics counts;
};

/// Each number another multiple of `unit`.
SlotStatistics numbered(std::uint64_t unit) {
  return {.slots = unit,
          .executables = 2 * unit,
          .leased = 3 * unit,
          .in_flight = 4 * unit,
          .unhealthy = 5 * unit,
          .runs = {.submitted = 6 * unit, .completed = 7 * unit, .failed = 8 * unit, .cancelled = 9 * unit},
          .copies = {.up_bytes = 10 * unit, .device_bytes = 11 * unit, .down_bytes = 12 * unit},
          .empty_acquires = 13 * unit,
          .patched_nodes = 14 * unit};
}

}  // namespace

TEST_CASE("A context's slots are the sum of its models and what counts so far outlives them", "[runtime][R38]") {
  ContextCounters counters;
  CHECK(counters.slots() == SlotStatistics{});
  const CountedSlots one(numbered(1));
  CountedSlots hundred(numbered(100));
  counters.add(one, {});
  counters.add(hundred, {});
  CHECK(counters.models() == 2);
  CHECK(counters.slots() == numbered(101));
  counters.remove(one);
  CHECK(counters.models() == 1);
  SlotStatistics expected = numbered(101);
  expected.slots = 100;
  expected.executables = 200;
  expected.leased = 300;
  expected.in_flight = 400;
  expected.unhealthy = 500;
  expected.runs = numbered(100).runs;  // Those of a model that is gone are its lanes'; see below.
  CHECK(counters.slots() == expected);
  hundred.counts.runs.submitted += 1;
  expected.runs.submitted += 1;
  CHECK(counters.slots() == expected);
  counters.remove(hundred);
  CHECK(counters.models() == 0);
  expected.slots = expected.executables = expected.leased = expected.in_flight = expected.unhealthy = 0;
  expected.runs = {};
  CHECK(counters.slots() == expected);
}

TEST_CASE("Statistics are written as JSON by the names of their fields", "[runtime][R38]") {
  ContextStatistics statistics;
  statistics.memory.requested = {1, 2, 3};
  statistics.memory.reserved = {4, 5, 6};
  statistics.memory.staging = {7, 8, 9};
  statistics.memory.graphs = {10, 11, 12};
  statistics.models = 13;
  statistics.slots = numbered(1000);
  statistics.transfers = {.lanes = 14, .submitted = 15, .copies = {16, 17, 18}};
  statistics.callback_failures = 19;
  const auto json = nlohmann::json::parse(to_json(statistics));
  const auto memory = [](int live, int peak, int allocations) {
    return nlohmann::json{{"live_bytes", live}, {"peak_bytes", peak}, {"allocations", allocations}};
  };
  CHECK(json.at("memory").at("requested") == memory(1, 2, 3));
  CHECK(json.at("memory").at("reserved") == memory(4, 5, 6));
  CHECK(json.at("memory").at("staging") == memory(7, 8, 9));
  CHECK(json.at("memory").at("graphs") == memory(10, 11, 12));
  CHECK(json.at("models") == 13);
  CHECK(json.at("transfers").at("lanes") == 14);
  CHECK(json.at("transfers").at("submitted") == 15);
  CHECK(json.at("transfers").at("copies") ==
        nlohmann::json{{"up_bytes", 16}, {"device_bytes", 17}, {"down_bytes", 18}});
  CHECK(json.at("callback_failures") == 19);
  const auto slots = json.at("slots");
  CHECK(slots == nlohmann::json::parse(to_json(statistics.slots)));
  CHECK(slots ==
        nlohmann::json{{"slots", 1000},
                       {"executables", 2000},
                       {"leased", 3000},
                       {"in_flight", 4000},
                       {"unhealthy", 5000},
                       {"runs", {{"submitted", 6000}, {"completed", 7000}, {"failed", 8000}, {"cancelled", 9000}}},
                       {"copies", {{"up_bytes", 10000}, {"device_bytes", 11000}, {"down_bytes", 12000}}},
                       {"empty_acquires", 13000},
                       {"patched_nodes", 14000}});
}

TEST_CASE("Copies outside graphs are counted by where they come from and go to", "[runtime][R38]") {
  const Context context = open_context();
  CHECK(context.statistics() == ContextStatistics{.memory = context.memory()});
  const std::vector<std::uint8_t> bytes = fresh_bytes(kBytes, 1);
  const DeviceTensor tensor = upload(context, bytes);
  CHECK(context.statistics().transfers.copies == CopyCounters{.up_bytes = kBytes});
  const DeviceTensor zeroes = context.tensor(bytes_desc(kBytes));
  static_cast<void>(tensor.copy_into(zeroes));
  CHECK(context.statistics().transfers.copies == CopyCounters{.up_bytes = kBytes, .device_bytes = kBytes});
  CHECK(values(zeroes) == bytes);
  const ContextStatistics seen = context.statistics();
  CHECK(seen.transfers.copies == CopyCounters{.up_bytes = kBytes, .device_bytes = kBytes, .down_bytes = kBytes});
  CHECK(seen.transfers.submitted >= 3);
  CHECK(seen.transfers.lanes >= 1);
  CHECK(seen.memory == context.memory());
}

TEST_CASE("A context is ready until its device is lost and then says why", "[runtime][R38]") {
  const auto failing =
      std::make_shared<FailingDevice>(open_device(test_device()), Verb::query_stream, 0, StatusCode::device_lost);
  const ScopedDevice scoped(test_device(), failing);
  const Context context = Context::open(test_device());
  const Readiness before = context.ready();
  CHECK(before.is_ready);
  CHECK(static_cast<bool>(before));
  CHECK(before.reason.empty());
  static_cast<void>(failing->query_stream(StreamHandle::none));
  const Readiness after = context.ready();
  CHECK(!after.is_ready);
  CHECK(!static_cast<bool>(after));
  CHECK(after.reason == "The device cannot run requests: it is lost (an injected failure).");
}

TEST_CASE("A context that opens is told to the log", "[runtime][R38]") {
  std::vector<std::string> told;
  set_log_sink([&](const LogRecord& record) {
    if (record.level == LogLevel::info && record.object == to_string(test_device())) told.emplace_back(record.message);
  });
  { const Context context = open_context(); }
  set_log_sink({});
  REQUIRE(told.size() == 2);
  CHECK(told[0].starts_with("A context of " + to_string(test_device()) + " is open: "));
  CHECK(told[1] == "A context of " + to_string(test_device()) + " is closed.");
}

TEST_CASE("A lost device is told to the log once", "[runtime][host-only][R38]") {
  const auto device = make_host_device();
  const ScopedDevice scoped(Device::host(), device);
  std::vector<std::string> told;
  set_log_sink([&](const LogRecord& record) {
    if (record.level == LogLevel::error) told.emplace_back(record.message);
  });
  {
    const Context context = Context::open(Device::host());
    device->lose();
    device->lose();
    const Error error = refusal([&] { static_cast<void>(context.upload({bytes_desc(1), {}, "t"})); });
    CHECK(error.code() != ErrorCode::internal);
    CHECK(!context.ready());
  }
  set_log_sink({});
  CHECK(told ==
        std::vector<std::string>{"The device host is lost (a sticky error); nothing more runs on it in this process."});
}

TEST_CASE("Runs of a model that is gone count once they end", "[runtime][R38]") {
  const Context context = open_context();
  ContextState& state = *ContextAccess::state(context);
  const auto page = std::make_shared<const PinnedBuffer>(state.domain(), kWordBytes, "a word");
  const auto word = [&](std::uint64_t run) { std::memcpy(page->host(), &run, sizeof(run)); };
  const auto lane = [&] {
    const auto log = std::make_shared<RunLog>(state.trace(), TraceTrack{1, "g", 0});
    return std::make_shared<Lane>(state.domain()->api(), page, page->host(), LaneOptions{.name = "g", .log = log});
  };
  const auto drained = lane();
  const auto late = lane();
  ContextCounters counters;
  const CountedSlots slots({.runs = {.submitted = 3, .completed = 2}});
  counters.add(slots, {drained, late});
  static_cast<void>(drained->run([] {}));
  static_cast<void>(late->run([] {}));
  static_cast<void>(late->run([] {}));
  word(1);
  const SlotStatistics in_flight{.in_flight = 1, .runs = {.submitted = 3, .completed = 2}};
  counters.remove(slots);
  CHECK(drained.use_count() == 1);
  CHECK(late.use_count() == 2);
  CHECK(counters.slots() == in_flight);
  counters.settle();
  CHECK(counters.slots() == in_flight);
  CHECK(late.use_count() == 2);
  word(2);
  const SlotStatistics over{.runs = {.submitted = 3, .completed = 3}};
  CHECK(counters.slots() == over);
  counters.settle();
  CHECK(late.use_count() == 1);
  CHECK(counters.slots() == over);
}

TEST_CASE("Runs of a model that is gone have failed when their device is lost", "[runtime][R38]") {
  const auto failing =
      std::make_shared<FailingDevice>(open_device(test_device()), Verb::query_stream, 0, StatusCode::device_lost);
  const ScopedDevice scoped(test_device(), failing);
  const Context context = Context::open(test_device());
  ContextState& state = *ContextAccess::state(context);
  const auto page = std::make_shared<const PinnedBuffer>(state.domain(), kWordBytes, "a word");
  const auto log = std::make_shared<RunLog>(state.trace(), TraceTrack{1, "g", 0});
  const auto lane =
      std::make_shared<Lane>(state.domain()->api(), page, page->host(), LaneOptions{.name = "g", .log = log});
  static_cast<void>(lane->run([] {}));
  ContextCounters counters;
  const CountedSlots slots({});
  counters.add(slots, {lane});
  counters.remove(slots);
  CHECK(lane.use_count() == 2);
  static_cast<void>(failing->query_stream(StreamHandle::none));
  counters.settle();
  CHECK(lane.use_count() == 1);
  CHECK(counters.slots() == SlotStatistics{.runs = {.submitted = 1, .failed = 1}});
}

TEST_CASE("A failure to give memory back or to wait at the end is told to the log", "[runtime][R38]") {
  struct Failure {
    Verb verb;
    const char* action;
  };
  for (const Failure& failure : {Failure{Verb::free_pinned, "free pinned memory"}, Failure{Verb::free, "free memory"},
                                 Failure{Verb::synchronize_stream, "wait for the last copies of a context"}}) {
    INFO(to_string(failure.verb));
    std::vector<std::string> told;
    const auto sink = [&](const LogRecord& record) {
      if (record.level == LogLevel::warning) told.emplace_back(record.message);
    };
    /// Returns how many calls of the verb there were.
    const auto copy_and_close = [&](std::uint64_t failing_call) {
      const auto failing =
          std::make_shared<FailingDevice>(open_device(test_device()), failure.verb, failing_call, StatusCode::internal);
      const ScopedDevice scoped(test_device(), failing);
      CHECK(values(upload(Context::open(test_device()), fresh_bytes(kBytes, 1))) == fresh_bytes(kBytes, 1));
      return failing->calls();
    };
    set_log_sink(sink);
    const std::uint64_t calls = copy_and_close(kNever);
    CHECK(told.empty());
    REQUIRE(calls > 0);
    CHECK(copy_and_close(calls - 1) == calls);
    set_log_sink({});
    CHECK(told == std::vector<std::string>{std::string("The device cannot ") + failure.action +
                                           ": a rule of its use is broken (an injected failure)."});
  }
}

TEST_CASE("A failure that a destructor meets is told to the log", "[runtime][R38]") {
  std::vector<std::string> told;
  const auto failing =
      std::make_shared<FailingDevice>(open_device(test_device()), Verb::destroy_event, 0, StatusCode::internal);
  set_log_sink([&](const LogRecord& record) {
    if (record.level == LogLevel::warning) told.emplace_back(record.message);
  });
  { const UniqueEvent event = create_event(failing); }
  { const UniqueEvent event = create_event(failing); }
  set_log_sink({});
  CHECK(told == std::vector<std::string>{
                    "The device cannot destroy an object: a rule of its use is broken (an injected failure)."});
}

}  // namespace weft::test
