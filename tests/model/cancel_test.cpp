#include "catch.h"
#include "device/host/host_device.h"
#include "support/requests.h"
#include <weft/completion_source.h>
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

// Cancelling: before the launch nothing runs; after it the results are refused, and the slot comes back drained.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

}  // namespace

TEST_CASE("A request that waits for the host and is cancelled never runs", "[model][cancel][R17][T17]") {
  XorModel model(kCount);
  PreparedModel pool = model.fragment.prepare({.forms = {kHostDevice}});
  CompletionSource gate(pool.context(), "gate");
  const DeviceTensor into = ready(pool.context(), fresh_bytes(kCount, 5));
  std::optional<ModelSlot> slot = pool.try_acquire();
  REQUIRE(slot.has_value());
  std::optional<Inference> run = std::move(*slot).submit({.into = {into}, .after = {gate.completion()}});
  std::atomic<bool> called{false};
  run->completion().then([&] { called = true; });
  CHECK(!pool.try_acquire().has_value());
  CHECK(run->completion().cancel());
  CHECK(!run->completion().cancel());
  CHECK(run->completion().poll() == CompletionStatus::cancelled);
  const Error error = refusal([&] { static_cast<void>(run->wait(in_a_minute())); });
  CHECK(error.code() == ErrorCode::cancelled);
  CHECK(contains(error.what(), "The work was cancelled while running graph"));
  CHECK(!run->completion().profile().launched.has_value());
  CHECK(eventually([&] { return called.load(); }));
  run.reset();
  // It need not wait for the gate.
  std::optional<ModelSlot> next = pool.acquire(in_a_minute());
  REQUIRE(next.has_value());
  CHECK(gate.complete());
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 6);
  std::ranges::copy(input, next->input<std::uint8_t>(0).begin());
  Inference after = std::move(*next).submit();
  CHECK(values(after.tensor(0)) == xored(input, 0xff));
  CHECK(values(into) == fresh_bytes(kCount, 5));
}

TEST_CASE("A run that is cancelled keeps its slot until it has drained and refuses its results",
          "[model][cancel][R17][R23][T17][host-only]") {
  HeldContext held;
  XorModel model(TestSession(held.context), kCount, 0xff);
  PreparedModel pool = model.fragment.prepare();
  held.device->hold();
  std::optional<Inference> run = start(pool, kHostHost, fresh_bytes(kCount, 1));
  Completion completion = run->completion();
  CHECK(completion.cancel());
  CHECK(refusal([&] { static_cast<void>(run->wait(past())); }).code() == ErrorCode::cancelled);
  CHECK(refusal([&] { static_cast<void>(run->output<std::uint8_t>(0)); }).code() == ErrorCode::cancelled);
  run.reset();
  CHECK(!pool.try_acquire().has_value());
  held.device->release();
  std::optional<ModelSlot> next = pool.acquire(in_a_minute());
  REQUIRE(next.has_value());
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 2);
  std::ranges::copy(input, next->input<std::uint8_t>(0).begin());
  Inference after = std::move(*next).submit();
  CHECK(result(after) == xored(input, 0xff));
  CHECK(completion.poll() == CompletionStatus::cancelled);  // Of its own run, whatever the slot has run since.
}

TEST_CASE("What has finished cannot be cancelled", "[model][cancel][R17]") {
  XorModel model(kCount);
  PreparedModel pool = model.fragment.prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  Inference run = start(pool, kHostHost, input);
  REQUIRE(run.wait(in_a_minute()));
  CHECK(!run.completion().cancel());
  CHECK(result(run) == xored(input, 0xff));
}

TEST_CASE("A request that reads the output of a cancelled run is refused", "[model][cancel][R12][R17][host-only]") {
  HeldContext held;
  XorModel model(TestSession(held.context), kCount, 0xff);
  PreparedModel pool = model.fragment.prepare({.slots = 2, .forms = all_forms()});
  held.device->hold();
  Inference run = start(pool, kHostDevice, fresh_bytes(kCount, 1));
  const DeviceTensor output = run.tensor(0);
  CHECK(run.completion().cancel());
  std::optional<ModelSlot> slot = pool.try_acquire();
  REQUIRE(slot.has_value());
  CHECK(refusal([&] { static_cast<void>(std::move(*slot).submit({output})); }).code() == ErrorCode::cancelled);
  CHECK(refusal([&] { static_cast<void>(output.copy_into(held.context.tensor(bytes_desc(kCount)))); }).code() ==
        ErrorCode::cancelled);
  held.device->release();
}

TEST_CASE("A completion tells of its own run when its slot has run again", "[model][cancel][R15]") {
  XorModel model(kCount);
  PreparedModel pool = model.fragment.prepare();
  std::vector<Completion> kept;
  for (std::uint64_t i = 0; i < 8; ++i) {
    Inference run = start(pool, kHostHost, fresh_bytes(kCount, i));
    kept.push_back(run.completion());
    REQUIRE(run.wait(in_a_minute()));
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    CHECK(kept[i].poll() == CompletionStatus::done);
    CHECK(!kept[i].cancel());
    if (i > 0) CHECK(*kept[i].profile().submitted >= *kept[i - 1].profile().finished);
  }
}

TEST_CASE("An outcome that somebody saw stays whoever cancels meanwhile", "[model][cancel][thread][R17]") {
  constexpr std::uint64_t kRuns = 2000;
  XorModel model(kCount);
  PreparedModel pool = model.fragment.prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  std::uint64_t changed = 0;
  for (std::uint64_t i = 0; i < kRuns; ++i) {
    Inference run = start(pool, kHostHost, input);
    const Completion completion = run.completion();
    std::atomic<CompletionStatus> seen{CompletionStatus::pending};
    std::thread other([&] {
      while (seen == CompletionStatus::pending) seen = completion.poll();
    });
    std::this_thread::sleep_for(std::chrono::microseconds(i % 64));
    Completion cancelled = completion;
    if (cancelled.cancel() != (cancelled.poll() == CompletionStatus::cancelled)) ++changed;
    other.join();
    if (completion.poll() != seen) ++changed;
  }
  CHECK(changed == 0);
}

}  // namespace weft::test
