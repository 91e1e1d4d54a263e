#include "catch.h"
#include "support/detached.h"
#include "support/requests.h"
#include <weft/completion_source.h>
#include <weft/weft.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

// What is counted of slots: of a prepared model, and of a context's together.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

SubmitOptions behind(const CompletionSource& source) { return {.after = {source.completion()}}; }

Detached acquire_in_coroutine(PreparedModel& pool, std::atomic<bool>& is_served) {
  is_served = (co_await pool.acquire_async(in_a_minute())).has_value();
}

}  // namespace

TEST_CASE("A prepared model counts its slots and what runs of them", "[model][R38]") {
  XorModel model(kCount);
  PreparedModel prepared = model.fragment.prepare({.slots = 3, .forms = {kHostHost, kHostDevice}});
  CHECK(prepared.statistics() == SlotStatistics{.slots = 3, .executables = 6});
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  std::optional<ModelSlot> held = prepared.try_acquire();
  CHECK(prepared.statistics() == SlotStatistics{.slots = 3, .executables = 6, .leased = 1});
  std::optional<Inference> run = submit(prepared, input);
  static_cast<void>(result(*run));
  SlotStatistics expected{.slots = 3, .executables = 6, .leased = 2};
  expected.runs = {.submitted = 1, .completed = 1};
  expected.copies = {.up_bytes = kCount, .down_bytes = kCount};
  CHECK(prepared.statistics() == expected);
  run.reset();
  held.reset();
  expected.leased = 0;
  CHECK(prepared.statistics() == expected);
  static_cast<void>(infer(prepared, input));
  expected.runs = {.submitted = 2, .completed = 2};
  expected.copies = {.up_bytes = 2 * kCount, .down_bytes = 2 * kCount};
  CHECK(prepared.statistics() == expected);
  CHECK(prepared.context().statistics().slots == expected);
}

TEST_CASE("A context counts all its models and goes on counting what they did when they are gone", "[model][R38]") {
  TestSession session;
  const Context context = session.context;
  XorModel model(std::move(session), kCount, 0xff);
  std::optional<PreparedModel> first = model.fragment.prepare({.slots = 2});
  PreparedModel second = model.fragment.prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  static_cast<void>(infer(*first, input));
  static_cast<void>(infer(second, input));
  static_cast<void>(infer(second, input));
  ContextStatistics seen = context.statistics();
  CHECK(seen.models == 2);
  CHECK(seen.slots.slots == 3);
  CHECK(seen.slots.executables == 3);
  CHECK(seen.slots.runs == RunCounters{.submitted = 3, .completed = 3});
  first.reset();
  seen = context.statistics();
  CHECK(seen.models == 1);
  CHECK(seen.slots.slots == 1);
  CHECK(seen.slots.runs == RunCounters{.submitted = 3, .completed = 3});
  CHECK(seen.slots.copies == CopyCounters{.up_bytes = 3 * kCount, .down_bytes = 3 * kCount});
}

TEST_CASE("A run in flight counts until it is done and not again", "[model][host-only][R38]") {
  HeldContext held;
  XorModel model(TestSession(held.context), kCount, 0xff);
  PreparedModel prepared = model.fragment.prepare();
  held.device->hold();
  Inference run = submit(prepared, fresh_bytes(kCount, 1));
  CHECK(prepared.statistics().in_flight == 1);
  CHECK(prepared.statistics().runs == RunCounters{.submitted = 1});
  held.device->release();
  REQUIRE(run.wait(in_a_minute()));
  CHECK(prepared.statistics().in_flight == 0);
  CHECK(prepared.statistics().runs == RunCounters{.submitted = 1, .completed = 1});
}

TEST_CASE("A run in flight when its model goes counts as what becomes of it", "[model][host-only][R38]") {
  HeldContext held;
  XorModel model(TestSession(held.context), kCount, 0xff);
  std::optional<PreparedModel> prepared = model.fragment.prepare({.slots = 3});
  held.device->hold();
  const auto submit_and_drop = [&] { return submit(*prepared, fresh_bytes(kCount, 1)).completion(); };
  const Completion done = submit_and_drop();
  const Completion cancelled = submit_and_drop();
  static_cast<void>(submit_and_drop());  // Nobody looks.
  prepared.reset();
  CHECK(cancelled.cancel());
  const ContextStatistics gone = held.context.statistics();
  CHECK(gone.models == 0);
  CHECK(gone.slots.in_flight == 3);
  CHECK(gone.slots.runs == RunCounters{.submitted = 3, .cancelled = 1});
  held.device->release();
  REQUIRE(done.wait(in_a_minute()));
  CHECK(eventually([&] { return held.context.statistics().slots.in_flight == 0; }));
  CHECK(held.context.statistics().slots.runs == RunCounters{.submitted = 3, .completed = 2, .cancelled = 1});
}

TEST_CASE("Runs that fail or are cancelled count as that and never as completed", "[model][host-only][R38]") {
  HeldContext held;
  XorModel model(TestSession(held.context), kCount, 0xff);
  PreparedModel prepared = model.fragment.prepare({.slots = 3});
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  CompletionSource producer(held.context, "a producer");
  std::optional<Inference> failing = prepared.try_acquire().value().submit(behind(producer));
  std::optional<Inference> early = prepared.try_acquire().value().submit(behind(producer));
  CHECK(early->completion().cancel());
  CHECK(prepared.statistics().runs == RunCounters{.submitted = 1, .cancelled = 1});
  held.device->hold();
  std::optional<Inference> late = submit(prepared, input);
  CHECK(late->completion().cancel());
  CHECK(prepared.statistics().in_flight == 1);
  CHECK(prepared.statistics().runs == RunCounters{.submitted = 2, .cancelled = 2});
  held.device->release();
  producer.fail(std::make_exception_ptr(std::runtime_error("no input")));
  const Error error = refusal([&] { static_cast<void>(failing->wait(in_a_minute())); });
  CHECK(error.code() == ErrorCode::failed);
  failing.reset();
  early.reset();
  late.reset();
  CHECK(eventually([&] { return prepared.is_idle(); }));
  for (int i = 0; i < 6; ++i) static_cast<void>(infer(prepared, input));
  const SlotStatistics seen = prepared.statistics();
  CHECK(seen.runs == RunCounters{.submitted = 9, .completed = 6, .failed = 1, .cancelled = 2});
  CHECK(seen.leased == 0);
  CHECK(seen.in_flight == 0);
}

TEST_CASE("A refused submission counts nowhere", "[model][R38]") {
  XorModel model(kCount);
  PreparedModel prepared = model.fragment.prepare();
  CompletionSource producer(prepared.context(), "a producer");
  producer.fail(std::make_exception_ptr(std::runtime_error("no input")));
  const Error error = refusal([&] { static_cast<void>(prepared.try_acquire().value().submit(behind(producer))); });
  CHECK(error.code() == ErrorCode::failed);
  CHECK(prepared.statistics() == SlotStatistics{.slots = 1, .executables = 1});
}

TEST_CASE("Acquires that come back empty are counted once each", "[model][R38]") {
  PreparedModel prepared = XorModel(kCount).fragment.prepare();
  std::optional<ModelSlot> slot = prepared.try_acquire();
  CHECK(prepared.statistics().empty_acquires == 0);
  CHECK(!prepared.try_acquire().has_value());
  CHECK(prepared.statistics().empty_acquires == 1);
  CHECK(!prepared.acquire(std::chrono::steady_clock::now() + std::chrono::milliseconds(5)).has_value());
  CHECK(prepared.statistics().empty_acquires == 2);
  std::atomic<bool> is_served{false};
  acquire_in_coroutine(prepared, is_served);  // It finds none at first and waits.
  CHECK(prepared.statistics().empty_acquires == 2);
  slot.reset();
  CHECK(eventually([&] { return is_served.load(); }));
  CHECK(prepared.acquire(in_a_minute()).has_value());
  CHECK(prepared.statistics().empty_acquires == 2);
  CHECK(prepared.context().statistics().slots.empty_acquires == 2);
}

TEST_CASE("Requests of tensors count what they copy on the device alone", "[model][R38]") {
  XorModel model(kCount);
  PreparedModel prepared = model.fragment.prepare({.forms = all_forms()});
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  const auto counted = [&](RequestForm form, std::vector<DeviceTensor> into) {
    const CopyCounters before = prepared.statistics().copies;
    {
      Inference run = start(prepared, form, input, std::move(into));
      const bool is_done = run.wait(in_a_minute());
      REQUIRE(is_done);
    }
    const CopyCounters after = prepared.statistics().copies;
    return CopyCounters{after.up_bytes - before.up_bytes, after.device_bytes - before.device_bytes,
                        after.down_bytes - before.down_bytes};
  };
  const DeviceTensor output = ready(prepared.context(), fresh_bytes(kCount, 2));
  CHECK(counted(kHostHost, {}) == CopyCounters{.up_bytes = kCount, .down_bytes = kCount});
  CHECK(counted(kHostDevice, {}) == CopyCounters{.up_bytes = kCount});
  CHECK(counted(kHostDevice, {output}) == CopyCounters{.up_bytes = kCount, .device_bytes = kCount});
  CHECK(counted(kDeviceHost, {}) == CopyCounters{.device_bytes = kCount, .down_bytes = kCount});
  CHECK(counted(kDeviceDevice, {}) == CopyCounters{.device_bytes = kCount});
  CHECK(counted(kDeviceDevice, {output}) == CopyCounters{.device_bytes = 2 * kCount});
}

TEST_CASE("Inputs and outputs in shared memory are copied nowhere", "[model][R38][T7]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x", .placement = Placement::shared});
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y", .placement = Placement::shared});
  const Command command = test.xor_of(x, y, 0xff);
  const ModelDefinition definition = test.freeze();
  PreparedModel prepared =
      definition.fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {command}}).prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  CHECK(infer(prepared, input) == xored(input, 0xff));
  CHECK(prepared.statistics().copies == CopyCounters{});
  CHECK(prepared.statistics().runs == RunCounters{.submitted = 1, .completed = 1});
}

TEST_CASE("A request that never ran has copied nothing", "[model][R38]") {
  XorModel model(kCount);
  PreparedModel prepared = model.fragment.prepare();
  CompletionSource producer(prepared.context(), "a producer");
  {
    const Inference run = prepared.try_acquire().value().submit(behind(producer));
    CHECK(run.completion().cancel());
  }
  CHECK(prepared.statistics().copies == CopyCounters{});
  CHECK(producer.complete());
  CHECK(eventually([&] { return prepared.is_idle(); }));
  static_cast<void>(infer(prepared, fresh_bytes(kCount, 1)));
  CHECK(prepared.statistics().copies == CopyCounters{.up_bytes = kCount, .down_bytes = kCount});
}

}  // namespace weft::test
