#include "acquire_queue.h"
#include "catch.h"
#include "device/host/host_device.h"
#include "support/detached.h"
#include "support/requests.h"
#include <weft/completion_source.h>
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

// Waiting for a slot: by threads, callbacks and coroutines, in one queue.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

/// Who was served, in order.
class Served {
 public:
  void add(int who) {
    const std::lock_guard lock(mutex_);
    order_.push_back(who);
  }
  [[nodiscard]] std::vector<int> order() const {
    const std::lock_guard lock(mutex_);
    return order_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int> order_;
};

Detached serve(PreparedModel pool, const std::vector<std::uint8_t>& input, std::vector<std::uint8_t>& output,
               std::atomic<bool>& done) {
  std::optional<ModelSlot> slot = co_await pool.acquire_async(in_a_minute());
  if (slot) {
    std::ranges::copy(input, slot->input<std::uint8_t>(0).begin());
    const Inference run = std::move(*slot).submit();
    co_await run.completion();
    const auto bytes = run.output<std::uint8_t>(0);
    output.assign(bytes.begin(), bytes.end());
  }
  done = true;
}

PreparedModel one_slot() { return XorModel(kCount).fragment.prepare(); }

}  // namespace

TEST_CASE("Those who wait for a slot are served in their order", "[model][acquire][R21][thread]") {
  PreparedModel pool = one_slot();
  std::optional<ModelSlot> held = pool.try_acquire();
  REQUIRE(held.has_value());
  Served served;
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    std::atomic<bool> is_waiting{false};
    if (i % 2 == 0) {
      threads.emplace_back([&, i] {
        is_waiting = true;
        std::optional<ModelSlot> slot = pool.acquire(in_a_minute());
        if (slot) served.add(i);
      });
      while (!is_waiting) std::this_thread::yield();
      // It stands in the queue a moment later; then the next may come.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    } else {
      pool.acquire_async(in_a_minute(), [&served, i](std::optional<ModelSlot> slot, const std::exception_ptr&) {
        if (slot) served.add(i);
      });
    }
  }
  CHECK(!pool.try_acquire().has_value());
  held.reset();
  CHECK(eventually([&] { return served.order().size() == 8; }));
  for (std::thread& thread : threads) thread.join();
  CHECK(served.order() == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(pool.try_acquire().has_value());
}

TEST_CASE("Nobody passes those who wait for a slot", "[model][acquire][R21][host-only]") {
  HeldContext held;
  PreparedModel pool = XorModel(TestSession(held.context), kCount, 0xff).fragment.prepare();
  held.device->hold();
  std::optional<Inference> run = start(pool, kHostHost, fresh_bytes(kCount, 1));
  std::atomic<int> served{0};
  std::optional<ModelSlot> taken;
  pool.acquire_async(in_a_minute(), [&](std::optional<ModelSlot> slot, const std::exception_ptr&) {
    taken = std::move(slot);
    ++served;
  });
  CHECK(!pool.try_acquire().has_value());
  run.reset();
  held.device->release();
  CHECK(eventually([&] { return served == 1; }));
  CHECK(taken.has_value());
  CHECK(!pool.try_acquire().has_value());
  taken.reset();
  CHECK(pool.try_acquire().has_value());
}

TEST_CASE("A free slot that nobody has handed out yet is kept for who waits", "[model][acquire][R21][host-only]") {
  HeldContext held;
  PreparedModel pool = XorModel(TestSession(held.context), kCount, 0xff).fragment.prepare();
  // The watcher has its hands full, so that it does not look for the waiter.
  std::promise<void> go_on;
  std::atomic<bool> is_busy{false};
  CompletionSource source(held.context, "source");
  source.completion().then([&is_busy, may_go_on = go_on.get_future().share()] {
    is_busy = true;
    may_go_on.wait();
  });
  CHECK(source.complete());
  REQUIRE(eventually([&] { return is_busy.load(); }));
  held.device->hold();
  std::optional<Inference> run = start(pool, kHostHost, fresh_bytes(kCount, 1));
  std::atomic<bool> served{false};
  pool.acquire_async(in_a_minute(), [&](const std::optional<ModelSlot>& slot, const std::exception_ptr&) {
    served = slot.has_value();
  });
  run.reset();
  held.device->release();
  CHECK(eventually([&] { return pool.is_idle(); }));
  CHECK(!pool.try_acquire().has_value());
  go_on.set_value();
  CHECK(eventually([&] { return served.load(); }));
}

TEST_CASE("A wait for a slot that ends at its deadline leaves the queue", "[model][acquire][R21]") {
  PreparedModel pool = one_slot();
  std::optional<ModelSlot> held = pool.try_acquire();
  CHECK(!pool.acquire(past()).has_value());
  CHECK(!pool.acquire(std::chrono::steady_clock::now() + std::chrono::milliseconds(20)).has_value());
  std::atomic<int> calls{0};
  std::atomic<bool> had_slot{false};
  pool.acquire_async(past(), [&](const std::optional<ModelSlot>& slot, const std::exception_ptr& error) {
    had_slot = slot.has_value() || error != nullptr;
    ++calls;
  });
  CHECK(eventually([&] { return calls == 1; }));
  CHECK(!had_slot);
  held.reset();
  CHECK(pool.try_acquire().has_value());
}

TEST_CASE("A callback waits for a slot that a readback leases and leaves no staging behind",
          "[model][acquire][R21][R22][T16]") {
  PreparedModel pool = one_slot();
  const MemoryCounters staging = pool.context().memory().staging;
  Inference run = start(pool, kHostHost, fresh_bytes(kCount, 1));
  std::optional<Readback> readback = std::move(run).download();
  REQUIRE(readback->wait(in_a_minute()));
  std::atomic<bool> served{false};
  pool.acquire_async(in_a_minute(), [&](const std::optional<ModelSlot>& slot, const std::exception_ptr&) {
    served = slot.has_value();
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  CHECK(!served);
  readback.reset();
  CHECK(eventually([&] { return served.load(); }));
  CHECK(eventually([&] { return pool.try_acquire().has_value(); }));
  CHECK(pool.context().memory().staging == staging);
}

TEST_CASE("A coroutine waits for a slot and for its run", "[model][acquire][R15][R21]") {
  PreparedModel pool = one_slot();
  constexpr std::size_t kCoroutines = 16;
  std::vector<std::vector<std::uint8_t>> inputs;
  std::vector<std::vector<std::uint8_t>> outputs(kCoroutines);
  std::vector<std::atomic<bool>> done(kCoroutines);
  for (std::size_t i = 0; i < kCoroutines; ++i) inputs.push_back(fresh_bytes(kCount, i));
  for (std::size_t i = 0; i < kCoroutines; ++i) serve(pool, inputs[i], outputs[i], done[i]);
  for (std::size_t i = 0; i < kCoroutines; ++i) {
    CHECK(eventually([&] { return done[i].load(); }));
    CHECK(outputs[i] == xored(inputs[i], 0xff));
  }
}

TEST_CASE("A callback that throws gives its slot back", "[model][acquire][R15]") {
  PreparedModel pool = one_slot();
  std::atomic<bool> called{false};
  pool.acquire_async(in_a_minute(), [&](const std::optional<ModelSlot>& slot, const std::exception_ptr&) {
    called = slot.has_value();
    throw std::runtime_error("The callback of the test throws.");
  });
  CHECK(eventually([&] { return called.load(); }));
  CHECK(eventually([&] { return pool.try_acquire().has_value(); }));
  CHECK(refusal([&] { pool.acquire_async(in_a_minute(), nullptr); }).code() == ErrorCode::invalid);
}

TEST_CASE("A lost device wakes all who wait for a slot", "[model][acquire][R19][thread][host-only]") {
  HeldContext held;
  PreparedModel pool = XorModel(TestSession(held.context), kCount, 0xff).fragment.prepare();
  held.device->hold();
  const Inference run = start(pool, kHostHost, fresh_bytes(kCount, 1));
  std::atomic<int> lost{0};
  const auto count = [&](const std::exception_ptr& error) {
    try {
      if (error != nullptr) std::rethrow_exception(error);
    } catch (const Error& thrown) {
      if (thrown.code() == ErrorCode::device_lost) ++lost;
    }
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      try {
        static_cast<void>(pool.acquire(in_a_minute()));
      } catch (const Error&) {
        count(std::current_exception());
      }
    });
  }
  pool.acquire_async(in_a_minute(),
                     [&](const std::optional<ModelSlot>&, const std::exception_ptr& error) { count(error); });
  held.device->lose();
  CHECK(eventually([&] { return lost == 5; }));
  for (std::thread& thread : threads) thread.join();
}

TEST_CASE("Threads that wait for few slots are all served and all answers are right", "[model][acquire][R21][thread]") {
  constexpr int kThreads = 8;
  PreparedModel pool = XorModel(kCount).fragment.prepare({.slots = 2});
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t, mine = pool]() mutable {
      for (int i = 0; i < 50; ++i) {
        const std::vector<std::uint8_t> input = fresh_bytes(kCount, static_cast<std::uint64_t>(t * 1000 + i));
        if (infer(mine, input) == xored(input, 0xff)) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right == kThreads * 50);
  CHECK(pool.is_idle());
}

}  // namespace weft::test
