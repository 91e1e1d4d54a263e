#include "catch.h"
#include "counters.h"
#include "device/faults.h"
#include "device/handles.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/device.h"
#include <weft/context.h>
#include <weft/error.h>
#include <weft/log.h>
#include <weft/statistics.h>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// What a context counts beside its slots, which model/slot_statistics_test.cpp tests.

namespace weft::test {
namespace {

constexpr std::uint64_t kBytes = 96;

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
          .empty_acquires = 13 * unit};
}

}  // namespace

TEST_CASE("A context's slots are the sum of its models and what counts so far outlives them", "[runtime][R38]") {
  ContextCounters counters;
  CHECK(counters.slots() == SlotStatistics{});
  const CountedSlots one(numbered(1));
  CountedSlots hundred(numbered(100));
  counters.add(one);
  counters.add(hundred);
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
  CHECK(counters.slots() == expected);
  hundred.counts.runs.submitted += 1;
  expected.runs.submitted += 1;
  CHECK(counters.slots() == expected);
  counters.remove(hundred);
  CHECK(counters.models() == 0);
  expected.slots = expected.executables = expected.leased = expected.in_flight = expected.unhealthy = 0;
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
                       {"empty_acquires", 13000}});
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
