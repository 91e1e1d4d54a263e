#include "catch.h"
#include "support/device.h"
#include "support/requests.h"
#include <weft/weft.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

/// Runs `body(i)` on threads of their own and waits for all. Catch2's assertions are for the caller: bodies count.
template <class Body>
void on_threads(std::uint32_t count, const Body& body) {
  std::vector<std::thread> threads;
  for (std::uint32_t i = 0; i < count; ++i) threads.emplace_back([&body, i] { body(i); });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

TEST_CASE("Eight threads share a pool of four slots and get their own answers", "[model][S71]") {
  constexpr std::uint32_t kThreads = 8;
  constexpr std::uint32_t kRequests = 60;
  PreparedModel prepared = XorModel(kCount).fragment.prepare({.slots = 4});
  std::atomic<std::uint32_t> right{0};
  on_threads(kThreads, [&](std::uint32_t thread) {
    PreparedModel handle = prepared;
    for (std::uint32_t i = 0; i < kRequests; ++i) {
      const std::vector<std::uint8_t> input = fresh_bytes(kCount, thread * kRequests + i);
      if (infer(handle, input) == xored(input, 0xff)) ++right;
    }
  });
  CHECK(right == kThreads * kRequests);
  CHECK(prepared.is_idle());
}

TEST_CASE("Slots that count in their scratch at once never see one another", "[model][S69][S71][thread][case-8]") {
  const std::uint64_t adds = on_cuda() ? 1'000'000 : 2'000;  // The host device has one thread for them.
  const std::uint32_t runs = on_cuda() ? 5'000 : 500;
  TestSession test;
  const auto add = test.session.load(count_up);
  const auto counter = test.session.allocate<std::uint32_t>({1}, {.label = "counter"});
  const auto y = test.session.allocate<std::uint32_t>({1}, {.label = "y"});
  const Command copy = test.slow_copy(grid(1), counter, y, std::uint64_t{1}, std::uint64_t{0});
  PreparedModel prepared =
      test.freeze()
          .fragment(trusted, {.outputs = {y}, .commands = {fill(counter, 0), add(workload(adds), counter, adds), copy}})
          .prepare({.slots = 2});
  std::atomic<std::uint32_t> right{0};
  std::atomic<bool> is_over{false};
  std::thread third([&] {
    // It gets a slot when one is free, or nothing: never one that runs.
    PreparedModel handle = prepared;
    while (!is_over) static_cast<void>(handle.try_acquire());
  });
  on_threads(2, [&](std::uint32_t) {
    PreparedModel handle = prepared;
    for (std::uint32_t i = 0; i < runs; ++i) {
      Inference run = submit(handle, {});
      if (run.wait(in_a_minute()) && run.output<std::uint32_t>(0)[0] == adds) ++right;
    }
  });
  is_over = true;
  third.join();
  CHECK(right == 2 * runs);
}

TEST_CASE("A request moves from thread to thread", "[model][S71]") {
  PreparedModel prepared = XorModel(kCount).fragment.prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  std::optional<ModelSlot> slot = prepared.try_acquire();
  std::optional<Inference> run;
  std::vector<std::uint8_t> output;
  std::thread([&] { std::ranges::copy(input, slot.value().input<std::uint8_t>(0).begin()); }).join();
  std::thread([&] { run = std::move(*slot).submit(); }).join();
  std::thread([&] { output = result(*run); }).join();
  std::thread([&] { run.reset(); }).join();
  CHECK(output == xored(input, 0xff));
  CHECK(prepared.try_acquire().has_value());
}

TEST_CASE("One fragment is prepared on two threads at once", "[model][S71]") {
  const XorModel model(kCount);
  std::atomic<std::uint32_t> right{0};
  on_threads(2, [&](std::uint32_t thread) {
    for (std::uint32_t i = 0; i < 10; ++i) {
      PreparedModel prepared = model.fragment.prepare({.slots = 2});
      const std::vector<std::uint8_t> input = fresh_bytes(kCount, thread * 10 + i);
      if (infer(prepared, input) == xored(input, 0xff)) ++right;
    }
  });
  CHECK(right == 20);
  CHECK(eventually([&] { return model.fragment.context().memory().staging.live_bytes == 0; }));
  CHECK(model.fragment.context().memory().requested.live_bytes == 0);
}

TEST_CASE("Many threads use the device first at once", "[model]") {
  constexpr std::uint32_t kThreads = 8;
  std::atomic<std::uint32_t> right{0};
  on_threads(kThreads, [&](std::uint32_t thread) {
    PreparedModel prepared = XorModel(kCount).fragment.prepare();
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, thread);
    if (infer(prepared, input) == xored(input, 0xff)) ++right;
  });
  CHECK(right == kThreads);
}

TEST_CASE("One definition makes fragments on many threads", "[model][S71]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount});
  const auto y = test.session.allocate<std::uint8_t>({kCount});
  const ModelDefinition model = test.freeze();
  std::atomic<std::uint32_t> right{0};
  on_threads(4, [&](std::uint32_t thread) {
    const auto mask = static_cast<std::uint8_t>(thread);
    PreparedModel prepared =
        model.fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, y, mask)}}).prepare();
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, thread);
    if (infer(prepared, input) == xored(input, mask)) ++right;
  });
  CHECK(right == 4);
}

TEST_CASE("Models are dropped on one thread while another serves in the same context", "[model]") {
  const Context context = Context::open(test_device());
  PreparedModel serving = XorModel(TestSession(context), kCount, 0xff).fragment.prepare({.slots = 2});
  std::atomic<std::uint32_t> right{0};
  on_threads(2, [&](std::uint32_t thread) {
    for (std::uint32_t i = 0; i < 20; ++i) {
      if (thread == 0) {
        PreparedModel brief = XorModel(TestSession(context), kCount, 0xff).fragment.prepare();
        static_cast<void>(submit(brief, fresh_bytes(kCount, i)));
      } else {
        const std::vector<std::uint8_t> input = fresh_bytes(kCount, i);
        if (infer(serving, input) == xored(input, 0xff)) ++right;
      }
    }
  });
  CHECK(right == 20);
}

TEST_CASE("Eight threads move values between the cells of one buffer and none is torn", "[model][S71][R13]") {
  constexpr std::uint32_t kThreads = 8;
  constexpr std::uint32_t kRequests = 60;
  constexpr std::uint64_t kCells = 5;
  constexpr std::uint64_t kCell = 4099;
  const XorModel model(kCell, 0);
  const Context context = model.fragment.context();
  PreparedModel pool = model.fragment.prepare({.slots = 6, .forms = {kHostDevice, kDeviceHost, kDeviceDevice}});
  const Buffer buffer = context.allocate(kCells * kCell, {.label = "cells"});
  std::atomic<std::uint32_t> right{0};
  on_threads(kThreads, [&](std::uint32_t thread) {
    std::mt19937 random(thread);
    PreparedModel handle = pool;
    const auto cell = [&] { return buffer.tensor(bytes_desc(kCell), (random() % kCells) * kCell); };
    for (std::uint32_t i = 0; i < kRequests; ++i) {
      const std::vector<std::uint8_t> value(kCell, static_cast<std::uint8_t>(random()));
      // All bytes of a cell are one value, whoever wrote it last.
      bool is_whole = true;
      switch (random() % 3) {
        case 0:
          static_cast<void>(start(handle, kHostDevice, value, {cell()}));
          break;
        case 1: {
          std::optional<ModelSlot> slot = handle.acquire(in_a_minute());
          static_cast<void>(std::move(slot.value()).submit({cell()}, {.into = {cell()}}));
          break;
        }
        default: {
          std::optional<ModelSlot> slot = handle.acquire(in_a_minute());
          Inference run = std::move(slot.value()).submit({cell()}, {.outputs = Side::host});
          const std::vector<std::uint8_t> seen = result(run);
          is_whole = static_cast<std::uint64_t>(std::ranges::count(seen, seen[0])) == kCell;
        }
      }
      if (is_whole) ++right;
    }
  });
  CHECK(right == kThreads * kRequests);
  CHECK(eventually([&] { return pool.is_idle(); }));
}

TEST_CASE("Threads pass tensors from pool to pool and get their own answers", "[model][S71][R28]") {
  constexpr std::uint32_t kThreads = 8;
  constexpr std::uint32_t kRequests = 40;
  const Context context = Context::open(test_device());
  std::vector<PreparedModel> pools;
  for (std::uint8_t i = 0; i < 4; ++i) {
    pools.push_back(XorModel(TestSession(context), kCount, static_cast<std::uint8_t>(1u << i))
                        .fragment.prepare({.slots = 3, .forms = all_forms()}));
  }
  std::atomic<std::uint32_t> right{0};
  on_threads(kThreads, [&](std::uint32_t thread) {
    std::mt19937 random(100 + thread);
    for (std::uint32_t i = 0; i < kRequests; ++i) {
      const std::vector<std::uint8_t> input = fresh_bytes(kCount, thread * kRequests + i);
      std::uint8_t mask = 0;
      DeviceTensor tensor = upload(context, input);
      // A tensor keeps its slot until the next pool has taken it, so pools are entered in one order alone.
      for (std::uint8_t pool = 0; pool < 4; ++pool) {
        if (random() % 3 == 0) continue;
        mask = static_cast<std::uint8_t>(mask | (1u << pool));
        tensor = pools[pool].acquire(in_a_minute()).value().submit({tensor}, {.outputs = Side::device}).tensor(0);
      }
      if (values(tensor) == xored(input, mask)) ++right;
    }
  });
  CHECK(right == kThreads * kRequests);
  CHECK(eventually([&] { return std::ranges::all_of(pools, &PreparedModel::is_idle); }));
}

TEST_CASE("A pool is prepared in large by two threads at once and dropped with runs in flight",
          "[model][S71][stamping]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint32_t>({1}, {.label = "x"});
  const ModelFragment fragment = test.freeze().fragment(
      trusted, {.inputs = {x},
                .outputs = {x},
                .commands = std::vector<Command>(400, test.increment(grid(1), x, std::uint32_t{1}))});
  std::atomic<std::uint32_t> right{0};
  on_threads(2, [&](std::uint32_t thread) {
    for (std::uint32_t round = 0; round < 3; ++round) {
      PreparedModel pool = fragment.prepare({.slots = 6});
      std::vector<Inference> runs;
      for (std::uint32_t i = 0; i < 6; ++i) {
        ModelSlot slot = pool.try_acquire().value();
        slot.input<std::uint32_t>(0)[0] = 1000 * thread + i;
        runs.push_back(std::move(slot).submit());
      }
      for (std::uint32_t i = 0; i < 5; ++i) {
        if (runs[i].wait(in_a_minute()) && runs[i].output<std::uint32_t>(0)[0] == 1000 * thread + i + 400) ++right;
      }
    }
  });
  CHECK(right == 30);
  CHECK(eventually([&] { return test.context.memory().staging.live_bytes == 0; }));
}

}  // namespace weft::test
