#include "catch.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/detached.h"
#include "support/device.h"
#include "support/requests.h"
#include <weft/completion.h>
#include <weft/completion_source.h>
#include <weft/error.h>
#include <weft/weft.h>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

enum class Outcome { none, done, failed };

Detached await(Completion completion, std::atomic<Outcome>& outcome, std::atomic<std::thread::id>& thread) {
  Outcome came_to = Outcome::done;
  try {
    co_await completion;
  } catch (const Error&) {
    came_to = Outcome::failed;
  }
  thread = std::this_thread::get_id();
  outcome = came_to;
}

/// A copy that the held device has not made yet.
struct HeldCopy {
  HeldCopy() {
    if (!destination.wait(in_a_minute()))
      throw Error(ErrorCode::internal, "The zeroes of the test take over a minute.");
    held.device->hold();
    copy = source.copy_into(destination);
  }
  [[nodiscard]] Completion completion() const { return copy->completion(); }

  HeldContext held;
  DeviceTensor source = upload(held.context, fresh_bytes(64, 1));
  DeviceTensor destination = held.context.tensor(bytes_desc(64));
  std::optional<DeviceTensor> copy;
};

}  // namespace

TEST_CASE("A completion without work is done", "[runtime][completion][R15]") {
  const Completion completion;
  CHECK(completion.poll() == CompletionStatus::done);
  CHECK(completion.wait(past()));
  CHECK(!completion.error().has_value());
  CHECK(!completion.cancel());
  CHECK(!completion.profile().submitted.has_value());
  completion.result();
  int calls = 0;
  completion.then([&] { ++calls; });
  CHECK(calls == 1);
}

TEST_CASE("A wait that ends at its deadline changes nothing", "[runtime][completion][R15][T41][host-only]") {
  HeldCopy work;
  const Completion completion = work.completion();
  CHECK(!completion.wait(past()));
  CHECK(completion.poll() == CompletionStatus::pending);
  CHECK(refusal([&] { completion.result(); }).code() == ErrorCode::busy);
  CHECK(!completion.error().has_value());
  work.held.device->release();
  CHECK(completion.wait(in_a_minute()));
  completion.result();
  CHECK(values(work.destination) == fresh_bytes(64, 1));
}

TEST_CASE("A callback is called once and on the thread of the watcher", "[runtime][completion][R15][T41][host-only]") {
  HeldCopy work;
  std::atomic<int> calls{0};
  std::atomic<std::thread::id> thread;
  work.completion().then([&] {
    thread = std::this_thread::get_id();
    ++calls;
  });
  CHECK(!work.completion().wait(past()));
  CHECK(calls == 0);
  work.held.device->release();
  CHECK(eventually([&] { return calls == 1; }));
  CHECK(thread.load() != std::this_thread::get_id());
  CHECK(work.completion().wait(in_a_minute()));
  work.completion().then([&] { ++calls; });
  CHECK(calls == 2);  // At once, for work that is done.
}

TEST_CASE("A callback that throws keeps no other from being called", "[runtime][completion][R15][T41]") {
  const Context context = open_context();
  CompletionSource source(context, "s");
  std::atomic<int> calls{0};
  for (int i = 0; i < 4; ++i) {
    source.completion().then([&, i] {
      ++calls;
      if (i % 2 == 0) throw std::runtime_error("The callback of the test throws.");
    });
  }
  CHECK(source.complete());
  CHECK(eventually([&] { return calls == 4; }));
  CHECK(eventually([&] { return context.statistics().callback_failures == 2; }));
}

TEST_CASE("A callback may drop the last handle of its context", "[runtime][completion][R20]") {
  std::optional<CompletionSource> source;
  std::atomic<bool> called{false};
  {
    const Context context = open_context();
    source.emplace(context, "s");
    source->completion().then([&called, context] { called = true; });
  }
  CHECK(source->complete());
  CHECK(eventually([&] { return called.load(); }));
}

TEST_CASE("A coroutine goes on when its completion is decided", "[runtime][completion][R15]") {
  const Context context = open_context();
  CompletionSource good(context, "good");
  CompletionSource bad(context, "bad");
  std::atomic<Outcome> done{Outcome::none};
  std::atomic<Outcome> failed{Outcome::none};
  std::atomic<Outcome> at_once{Outcome::none};
  std::atomic<std::thread::id> thread;
  await(good.completion(), done, thread);
  await(bad.completion(), failed, thread);
  CHECK(done.load() == Outcome::none);
  CHECK(failed.load() == Outcome::none);
  CHECK(bad.fail(nullptr));
  CHECK(eventually([&] { return failed.load() == Outcome::failed; }));
  CHECK(done.load() == Outcome::none);
  CHECK(good.complete());
  CHECK(eventually([&] { return done.load() == Outcome::done; }));
  CHECK(thread.load() != std::this_thread::get_id());
  await(good.completion(), at_once, thread);
  CHECK(at_once.load() == Outcome::done);
  CHECK(thread.load() == std::this_thread::get_id());
}

TEST_CASE("A profile tells when work was submitted and launched and seen to finish",
          "[runtime][completion][R15][host-only]") {
  const auto before = std::chrono::steady_clock::now();
  HeldCopy work;
  RunProfile profile = work.completion().profile();
  REQUIRE(profile.submitted.has_value());
  REQUIRE(profile.launched.has_value());
  CHECK(!profile.finished.has_value());
  CHECK(*profile.submitted >= before);
  CHECK(*profile.launched >= *profile.submitted);
  work.held.device->release();
  REQUIRE(work.completion().wait(in_a_minute()));
  profile = work.completion().profile();
  REQUIRE(profile.finished.has_value());
  CHECK(*profile.finished >= *profile.launched);
  CHECK(work.completion().profile().finished == profile.finished);
}

TEST_CASE("A lost device fails what is in flight and calls back", "[runtime][completion][R15][R19][T41][host-only]") {
  HeldCopy work;
  const Completion completion = work.completion();
  std::atomic<bool> called{false};
  completion.then([&] { called = true; });
  work.held.device->lose();
  CHECK(eventually([&] { return called.load(); }));
  CHECK(completion.poll() == CompletionStatus::failed);
  const Error error = refusal([&] { static_cast<void>(completion.wait(in_a_minute())); });
  CHECK(error.code() == ErrorCode::device_lost);
  CHECK(contains(error.what(), "running copies"));
  REQUIRE(completion.error().has_value());
  CHECK(completion.error()->code() == ErrorCode::device_lost);
}

TEST_CASE("A completion tells its outcome after its context is gone", "[runtime][completion][R15]") {
  std::optional<Completion> copied;
  std::optional<Completion> undecided;
  {
    const Context context = open_context();
    const DeviceTensor source = upload(context, fresh_bytes(64, 1));
    copied = source.copy_into(context.tensor(bytes_desc(64))).completion();
    const CompletionSource dropped(context, "dropped");
    undecided = dropped.completion();
  }
  CHECK(copied->wait(in_a_minute()));
  CHECK(undecided->poll() == CompletionStatus::failed);
  int calls = 0;
  copied->then([&] { ++calls; });
  undecided->then([&] { ++calls; });
  CHECK(calls == 2);
}

TEST_CASE("A callback comes after the work though the last handle of its context is going meanwhile",
          "[runtime][completion][R15][host-only]") {
  const auto device = std::make_shared<HostDevice>(HostOptions{});
  const ScopedDevice scoped(Device::host(), device);
  std::optional<Context> context(Context::open(Device::host()));
  std::optional<DeviceTensor> from(ready(*context, fresh_bytes(64, 1)));
  device->hold();
  Completion completion;
  {
    const DeviceTensor copy = from->copy_into(context->tensor(from->desc()));
    completion = copy.completion();
  }
  from.reset();
  std::thread closing([&] { context.reset(); });
  std::thread releasing([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    device->release();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  std::atomic<CompletionStatus> seen{CompletionStatus::pending};
  std::atomic<bool> is_called{false};
  completion.then([&] {
    seen = completion.poll();
    is_called = true;
  });
  CHECK(eventually([&] { return is_called.load(); }));
  CHECK(seen.load() == CompletionStatus::done);
  closing.join();
  releasing.join();
}

}  // namespace weft::test
