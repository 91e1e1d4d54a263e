#include "catch.h"
#include "support/device.h"
#include "support/new_process.h"
#include "support/requests.h"
#include <weft/completion_source.h>
#include <weft/error.h>
#include <weft/weft.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

// How a process ends, or forks, whatever of weft it still has.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 4096;
constexpr int kExitCode = 7;

/// All that a server may have at its end: runs in flight, one that waits for the host, who waits for a slot, callbacks.
struct Everything {
  Everything() {
    for (std::uint64_t i = 0; i < 2; ++i) runs.push_back(start(pool, kHostDevice, fresh_bytes(kCount, i)));
    std::optional<ModelSlot> slot = pool.acquire(in_a_minute());
    if (slot) runs.push_back(std::move(*slot).submit({.after = {gate.completion()}}));
    output = runs.front().tensor(0);
    copy = output->copy_into(pool.context().tensor(bytes_desc(kCount)));
    gate.completion().then([this] { ++calls; });
    runs.back().completion().then([this] { ++calls; });
    pool.acquire_async(in_a_minute(), [this](const std::optional<ModelSlot>&, const std::exception_ptr&) { ++calls; });
  }

  XorModel model = XorModel(kCount);
  PreparedModel pool = model.fragment.prepare({.slots = 3, .forms = all_forms()});
  CompletionSource gate{pool.context(), "gate"};
  std::vector<Inference> runs;
  std::optional<DeviceTensor> output;
  std::optional<DeviceTensor> copy;
  std::atomic<int> calls{0};
};

std::unique_ptr<Everything> everything_before_main;

}  // namespace

TEST_CASE("exit from main ends a process whose static objects hold all of a server",
          "[model][process_end][fork][case-40]") {
  in_new_process(
      [] {
        everything_before_main = std::make_unique<Everything>();
        static Everything later;
        std::exit(kExitCode);
      },
      kExitCode);
}

TEST_CASE("exit from another thread ends a process that serves", "[model][process_end][fork][case-40]") {
  in_new_process(
      [] {
        everything_before_main = std::make_unique<Everything>();
        static Everything later;
        PreparedModel mine =
            later.pool;  // Statics go under the feet of who still uses them; a handle of one's own does not.
        std::thread([] { std::exit(kExitCode); }).detach();
        try {
          for (;;) static_cast<void>(infer(mine, fresh_bytes(kCount, 1)));
        } catch (const Error& error) {
          require(error.code() == ErrorCode::device_lost, 2);
        }
        for (;;) ::pause();
      },
      kExitCode);
}

TEST_CASE("exit from a callback ends a process that serves", "[model][process_end][fork][case-40]") {
  in_new_process(
      [] {
        static Everything everything;
        everything.runs.front().completion().then([] { std::exit(kExitCode); });
        CompletionSource last(everything.pool.context(), "last");
        last.completion().then([] { std::exit(kExitCode); });
        static_cast<void>(last.complete());
        for (;;) ::pause();
      },
      kExitCode);
}

TEST_CASE("A process ends as it was asked to a hundred times", "[model][process_end][fork][long][case-40]") {
  for (int i = 0; i < 100; ++i) {
    INFO("process " << i);
    in_new_process(
        [] {
          static std::optional<Everything> everything;
          static std::optional<Inference> run;
          everything.emplace();
          // All slots of that pool are leased.
          PreparedModel pool = everything->model.fragment.prepare();
          run = start(pool, kHostHost, fresh_bytes(kCount, 1));
          if (::getpid() % 2 == 0) std::thread([] { std::exit(kExitCode); }).join();
          std::exit(kExitCode);
        },
        kExitCode);
  }
}

TEST_CASE("A child after fork is told so by every call and ends", "[model][process_end][fork][case-41]") {
  in_new_process([] {
    auto everything = std::make_unique<Everything>();
    const auto is_told = [](auto&& call) {
      try {
        call();
      } catch (const Error& error) {
        return error.code() == ErrorCode::device_lost && contains(error.what(), "forked");
      }
      return false;
    };
    const auto in_child = [&] {
      Everything& all = *everything;
      require(is_told([&] { static_cast<void>(all.runs.back().wait(in_a_minute())); }), 2);
      require(is_told([&] { static_cast<void>(all.pool.acquire(in_a_minute())); }), 3);
      require(is_told([&] { all.gate.completion().then([] {}); }), 4);
      require(is_told([&] { all.pool.acquire_async(in_a_minute(), [](auto&&, auto&&) {}); }), 5);
      require(is_told([&] { static_cast<void>(all.output->copy_into(*all.copy)); }), 6);
      require(is_told([&] { static_cast<void>(Context::open(test_device())); }), 7);
      static_cast<void>(all.gate.complete());
      static_cast<void>(all.runs.back().completion().cancel());
      everything.reset();
    };
    for (int i = 0; i < 10; ++i) require(succeeds_in_child(in_child, 5), 10);
    // The parent goes on.
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, 5);
    require(everything->gate.complete(), 11);
    require(everything->runs.back().wait(in_a_minute()), 12);
    everything->runs.clear();
    everything->output.reset();
    require(infer(everything->pool, input) == xored(input, 0xff), 13);
    everything.reset();
    std::exit(0);
  });
}

}  // namespace weft::test
