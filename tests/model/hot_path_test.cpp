#include "catch.h"
#include "device/faults.h"
#include "device/registry.h"
#include "support/call_count.h"
#include "support/deadlines.h"
#include "support/device.h"
#include "support/marking_device.h"
#include "support/requests.h"
#include <weft/weft.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

// What a warm request costs beyond the driver.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;
/// Of Inference::tensor: the lease, how it is counted, and the shape of the descriptor.
constexpr std::uint64_t kTensorAllocations = 3;

/// What so many allocations by operator new count for.
Calls allocations(std::uint64_t count) { return {.news = count, .mallocs = count}; }

/// The calls that one `call` makes beside the device's.
template <class F>
Calls calls_of(F&& call) {
  call_count = {};
  std::forward<F>(call)();
  return call_count.outside;
}

/// Waits for a run that has finished: a wait that takes long asks the device, however fast the machine is usually.
void finish(Inference& run) {
  const Deadline deadline = in_a_minute();
  while (!run.completion().is_done() && std::chrono::steady_clock::now() < deadline) std::this_thread::yield();
  if (!run.wait(deadline)) FAIL("a request takes over a minute");
}

}  // namespace

TEST_CASE("The counting operator new counts", "[model]") {
  call_count = {};
  // Called as functions: the compiler may leave out a pair of new and delete.
  ::operator delete(::operator new(16));
  call_count.in_device_call = true;
  ::operator delete(::operator new(16, std::align_val_t(64)), std::align_val_t(64));
  ::operator delete(::operator new(16));
  call_count.in_device_call = false;
  const CallCount seen = call_count;
  CHECK(seen.outside.news == 1);
  CHECK(seen.inside.news == 2);
}

TEST_CASE("Locks and allocations of the C library are counted", "[model][counted]") {
  std::vector<void*> memory;
  memory.reserve(8);
  CHECK(calls_of([&] {
          memory.push_back(std::malloc(16));
          memory.push_back(std::calloc(2, 8));
          memory.push_back(std::realloc(nullptr, 16));
          memory.push_back(std::aligned_alloc(64, 64));
          memory.push_back(nullptr);
          if (posix_memalign(&memory.back(), 64, 64) != 0) memory.back() = nullptr;
        }) == Calls{.mallocs = 5});
  for (void* const each : memory) {
    CHECK(each != nullptr);
    std::free(each);
  }
  CHECK(calls_of([] { ::operator delete(::operator new(16)); }) == allocations(1));

  std::mutex mutex;
  CHECK(calls_of([&] { const std::lock_guard lock(mutex); }) == Calls{.mutexes = 1});
  CHECK(calls_of([&] { const std::unique_lock lock(mutex, std::try_to_lock); }) == Calls{.mutexes = 1});
  std::timed_mutex timed;
  CHECK(calls_of([&] { const std::unique_lock lock(timed, past()); }) == Calls{.mutexes = 1});
  std::shared_mutex shared;
  CHECK(calls_of([&] { const std::unique_lock lock(shared); }) == Calls{.rwlocks = 1});
  CHECK(calls_of([&] { const std::shared_lock lock(shared); }) == Calls{.rwlocks = 1});
  CHECK(calls_of([&] { const std::shared_lock lock(shared, std::try_to_lock); }) == Calls{.rwlocks = 1});
  CHECK(calls_of([&] { const std::unique_lock lock(shared, std::try_to_lock); }) == Calls{.rwlocks = 1});

  std::condition_variable condition;
  CHECK(calls_of([&] { condition.notify_one(); }) == Calls{.conditions = 1});
  CHECK(calls_of([&] { condition.notify_all(); }) == Calls{.conditions = 1});
  std::unique_lock lock(mutex);
  CHECK(calls_of([&] { condition.wait_until(lock, past()); }).conditions == 1);
  CHECK(calls_of([&] { condition.wait_until(lock, std::chrono::system_clock::time_point{}); }).conditions == 1);
  // In the library itself; woken by the other, or by accident.
  std::thread waker;
  bool is_woken = false;
  waker = std::thread([&] {
    const std::lock_guard waking(mutex);
    is_woken = true;
    condition.notify_one();
  });
  CHECK(calls_of([&] {
          while (!is_woken) condition.wait(lock);
        }).conditions >= 1);
  lock.unlock();
  waker.join();
}

TEST_CASE("A warm request is one call of the device and neither allocates nor locks beside it",
          "[model][T52][counted]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), std::make_shared<MarkingDevice>(counting));
  XorModel model(kCount);
  PreparedModel prepared = model.fragment.prepare({.slots = 2});
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  const std::vector<std::uint8_t> expected = xored(input, 0xff);
  static_cast<void>(infer(prepared, input));

  const bool tries = GENERATE(false, true);
  INFO((tries ? "try_acquire" : "acquire"));
  counting->reset();
  call_count = {};
  bool right = true;
  constexpr std::uint32_t kRequests = 200;
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    std::optional<ModelSlot> slot = tries ? prepared.try_acquire() : prepared.acquire(in_a_minute());
    std::ranges::copy(input, slot->input(model.x).begin());
    Inference run = std::move(*slot).submit();
    finish(run);
    right = std::ranges::equal(run.output(model.y), expected) && right;
  }
  const CallCount seen = call_count;
  CHECK(right);
  CHECK(counting->count(Verb::launch) == kRequests);
  CHECK(counting->total() == kRequests);
  CHECK(seen.outside == Calls{});
  if (on_cuda()) {
    WARN("Inside CUDA's calls of " << kRequests << " requests: " << seen.inside);
    CHECK(seen.inside.news == 0);
  }
}

TEST_CASE("A warm request of tensors is one call of the device and allocates and locks for them alone",
          "[model][T52][counted]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), std::make_shared<MarkingDevice>(counting));
  const XorModel model(kCount);
  PreparedModel prepared = model.fragment.prepare({.forms = {kHostDevice, kDeviceHost, kDeviceDevice}});
  const std::vector<DeviceTensor> inputs{ready(prepared.context(), fresh_bytes(kCount, 1))};
  const DeviceTensor output = ready(prepared.context(), fresh_bytes(kCount, 2));
  enum class Outputs { host, leased, into };
  const auto count = [&](Side side, Outputs outputs) {
    const auto serve = [&] {
      SubmitOptions options{.outputs = outputs == Outputs::host ? Side::host : Side::device};
      if (outputs == Outputs::into) options.into = {output};
      call_count = {};
      {
        ModelSlot slot = prepared.acquire(in_a_minute()).value();
        Inference run = side == Side::host ? std::move(slot).submit(std::move(options))
                                           : std::move(slot).submit(inputs, std::move(options));
        if (outputs == Outputs::leased) static_cast<void>(run.tensor(0));
        finish(run);
      }
      return call_count.outside;
    };
    for (int i = 0; i < 3; ++i) static_cast<void>(serve());
    counting->reset();
    const Calls seen = serve();
    CHECK(counting->total() == 1);
    return seen;
  };
  CHECK(count(Side::host, Outputs::leased) == allocations(kTensorAllocations));
  // Memory that others may touch is put in order under a lock.
  CHECK(count(Side::device, Outputs::host) == Calls{.mutexes = 1});
  CHECK(count(Side::host, Outputs::into) == Calls{.mutexes = 1});
  CHECK(count(Side::device, Outputs::into) == Calls{.mutexes = 1});
  const Calls both = count(Side::device, Outputs::leased);
  CHECK(both == Calls{.news = kTensorAllocations, .mallocs = kTensorAllocations, .mutexes = 1});
}

TEST_CASE("A busy pool is asked for a slot without a call of the device and without allocating or locking",
          "[model][counted]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  PreparedModel prepared = XorModel(kCount).fragment.prepare();
  const ModelSlot slot = prepared.try_acquire().value();
  counting->reset();
  call_count = {};
  for (int i = 0; i < 100; ++i) {
    if (prepared.try_acquire().has_value()) FAIL("the pool handed its slot out twice");
  }
  const CallCount seen = call_count;
  CHECK(seen.outside == Calls{});
  CHECK(counting->total() == 0);
}

}  // namespace weft::test
