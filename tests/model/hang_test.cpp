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
#include <memory>
#include <optional>
#include <utility>
#include <vector>

// Runs that never end: told to who waits, kept from who asks for a slot, and waited for by no destructor.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;
constexpr std::chrono::milliseconds kHangAfter{30};

}  // namespace

TEST_CASE("A run past its limit is told with its plan and slot and its slot is not used again",
          "[model][hang][R21][host-only]") {
  HeldContext held;
  PreparedModel pool =
      XorModel(TestSession(held.context), kCount, 0xff).fragment.prepare({.slots = 2, .hang_after = kHangAfter});
  held.device->hold();
  std::optional<Inference> run = start(pool, kHostHost, fresh_bytes(kCount, 1));
  const Error error = refusal([&] { static_cast<void>(run->wait(in_a_minute())); });
  CHECK(error.code() == ErrorCode::failed);
  CHECK(contains(error.what(), "While running graph \"xor\" in slot 0: Run 1 has not finished for 0."));
  CHECK(contains(error.what(), "and hang_after is 0.030 s; its slot is not used again."));
  CHECK(run->completion().poll() == CompletionStatus::failed);
  CHECK(refusal([&] { static_cast<void>(run->output<std::uint8_t>(0)); }).code() == ErrorCode::failed);
  run.reset();
  {
    const std::optional<ModelSlot> other = pool.try_acquire();
    REQUIRE(other.has_value());
    CHECK(!pool.try_acquire().has_value());
  }
  held.device->release();
  held.device->drain();
  // It has ended after all, but what was promised holds.
  const std::optional<ModelSlot> other = pool.acquire(in_a_minute());
  REQUIRE(other.has_value());
  CHECK(!pool.try_acquire().has_value());
  CHECK(!pool.acquire(past()).has_value());
}

TEST_CASE("Who waits for a slot finds runs past their limit and is told when no slot is left",
          "[model][hang][R21][host-only]") {
  HeldContext held;
  PreparedModel pool =
      XorModel(TestSession(held.context), kCount, 0xff).fragment.prepare({.slots = 2, .hang_after = kHangAfter});
  held.device->hold();
  static_cast<void>(start(pool, kHostHost, fresh_bytes(kCount, 1)));
  static_cast<void>(start(pool, kHostHost, fresh_bytes(kCount, 2)));
  std::atomic<bool> told{false};
  const Error error = refusal([&] { static_cast<void>(pool.acquire(in_a_minute())); });
  CHECK(error.code() == ErrorCode::failed);
  CHECK(contains(error.what(), "All 2 slots of graph \"xor\" hang; none of them is used again."));
  CHECK(refusal([&] { static_cast<void>(pool.try_acquire()); }).code() == ErrorCode::failed);
  pool.acquire_async(in_a_minute(), [&](const std::optional<ModelSlot>& slot, const std::exception_ptr& failure) {
    told = !slot && failure != nullptr;
  });
  CHECK(eventually([&] { return told.load(); }));
  held.device->release();
}

TEST_CASE("Nothing that goes waits for a run past its limit", "[model][hang][R20][host-only]") {
  const auto device = std::make_shared<HostDevice>(HostOptions{});
  {
    const ScopedDevice scoped(Device::host(), device);
    const Context context = Context::open(Device::host());
    PreparedModel pool =
        XorModel(TestSession(context), kCount, 0xff).fragment.prepare({.forms = all_forms(), .hang_after = kHangAfter});
    device->hold();
    Inference run = start(pool, kHostDevice, fresh_bytes(kCount, 1));
    const DeviceTensor output = run.tensor(0);
    // A copy behind it hangs with it, on a lane that has no limit of its own.
    const DeviceTensor copy = output.copy_into(context.tensor(bytes_desc(kCount)));
    CHECK(refusal([&] { static_cast<void>(run.wait(in_a_minute())); }).code() == ErrorCode::failed);
  }
  CHECK(device->violations().empty());  // It was reached: all handles are gone, and the device is still held.
  device->release();
  device->drain();
}

TEST_CASE("A callback is told of a run past its limit though the watcher is always busy",
          "[model][hang][R15][host-only]") {
  HeldContext held;
  PreparedModel pool = XorModel(TestSession(held.context), kCount, 0xff).fragment.prepare({.hang_after = kHangAfter});
  held.device->hold();
  const Inference run = start(pool, kHostHost, fresh_bytes(kCount, 1));
  std::atomic<bool> told{false};
  run.completion().then([&] { told = true; });
  CHECK(eventually([&] {
    CompletionSource source(held.context, "traffic");
    source.completion().then([] {});
    static_cast<void>(source.complete());
    return told.load();
  }));
  CHECK(run.completion().poll() == CompletionStatus::failed);
  held.device->release();
}

TEST_CASE("A run within its limit is not disturbed", "[model][hang]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare({.slots = 2, .hang_after = std::chrono::minutes(2)});
  for (std::uint64_t i = 0; i < 20; ++i) {
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, i);
    CHECK(infer(pool, input) == xored(input, 0xff));
  }
}

TEST_CASE("A context goes though a run hangs that nobody has waited for", "[model][hang][R20][host-only]") {
  const auto device = std::make_shared<HostDevice>(HostOptions{});
  {
    const ScopedDevice scoped(Device::host(), device);
    const Context context = Context::open(Device::host());
    PreparedModel pool = XorModel(TestSession(context), kCount, 0xff).fragment.prepare({.hang_after = kHangAfter});
    device->hold();
    static_cast<void>(start(pool, kHostHost, fresh_bytes(kCount, 1)));
  }
  CHECK(device->violations().empty());  // It was reached, and the device is still held.
  device->release();
  device->drain();
}

}  // namespace weft::test
