#include "catch.h"
#include "support/call_count.h"
#include "support/device.h"
#include "support/requests.h"
#include <weft/completion_source.h>
#include <weft/error.h>
#include <weft/plan_cache.h>
#include <weft/plan_key.h>
#include <weft/weft.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <functional>
#include <malloc.h>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// Many threads over several models of one context, with all that a server does to requests: deadlines, cancellations,
// results that nobody fetches, plans that are evicted while they run. Every answer is checked.

namespace weft::test {
namespace {

constexpr std::size_t kModels = 4;
constexpr std::size_t kThreads = 32;
constexpr std::uint32_t kSlots = 8;
constexpr std::uint64_t kForgetOneIn = 1000;  // Requests before which a plan is forgotten, to be loaded anew.
// While warming up: what a driver and malloc keep for as many plans at once as there may be is there afterwards.
constexpr std::uint64_t kForgetOneInWhileWarm = 50;

std::uint64_t requests_asked_for(std::uint64_t usual) {
  const char* asked = std::getenv("WEFT_TEST_REQUESTS");
  return asked == nullptr ? usual : std::strtoull(asked, nullptr, 10);
}

/// What requests came to.
struct Tally {
  std::atomic<std::uint64_t> answered{0};
  std::atomic<std::uint64_t> late{0};       ///< No slot before the deadline.
  std::atomic<std::uint64_t> dropped{0};    ///< Submitted, and not waited for.
  std::atomic<std::uint64_t> cancelled{0};  ///< With that outcome.
  std::atomic<std::uint64_t> failed{0};     ///< The source failed that they follow.
  std::atomic<std::uint64_t> called{0};     ///< Callbacks.
  std::atomic<std::uint64_t> wrong{0};
  std::mutex mutex;
  std::string first_wrong;  // Guarded by mutex.

  void note(const std::string& what) {
    ++wrong;
    const std::lock_guard lock(mutex);
    if (first_wrong.empty()) first_wrong = what;
  }
  [[nodiscard]] std::uint64_t total() const { return answered + late + dropped + cancelled + failed; }
};

class Server {
 public:
  Server() {
    for (std::size_t i = 0; i < kModels; ++i) {
      models_.emplace_back(TestSession(context_), bytes(i), mask(i));
      keys_.push_back(PlanKey().add("model", i));
    }
  }

  [[nodiscard]] const Context& context() const { return context_; }

  /// `requests` from all threads together, as the seed says. After `warm_up` of them, once all of those are done,
  /// `pause` is called while nothing happens.
  void serve(
      std::uint64_t requests, std::uint64_t seed, Tally& tally, std::uint64_t warm_up = 0,
      const std::function<void()>& pause = [] {}) {
    std::atomic<std::uint64_t> next{0};
    const auto serve_until = [&](std::uint64_t end, std::mt19937_64& random, std::uint64_t forget_one_in) {
      while (next.fetch_add(1) < end) {
        try {
          if (random() % forget_one_in == 0) forget(random() % kModels);
          request(random, tally);
        } catch (const std::exception& error) {
          tally.note(error.what());
        }
      }
    };
    std::barrier paused(kThreads, [&]() noexcept {
      pause();
      next = warm_up;
    });
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        std::mt19937_64 random(seed * kThreads + t);
        serve_until(warm_up, random, kForgetOneInWhileWarm);
        paused.arrive_and_wait();
        serve_until(requests, random, kForgetOneIn);
        paused.arrive_and_wait();  // The last look, with the same threads.
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  /// Lets go of all plans, and returns once nothing of them is left.
  [[nodiscard]] bool settle() {
    for (const PlanKey& key : keys_) cache_.forget(key);
    return eventually([&] {
      const ContextStatistics statistics = context_.statistics();
      return statistics.models == 0 && statistics.memory.staging.live_bytes == 0 && statistics.slots.in_flight == 0;
    });
  }

  [[nodiscard]] PlanCacheStatistics cache_statistics() const { return cache_.statistics(); }

 private:
  static std::uint64_t bytes(std::size_t model) { return 48 + 100 * model; }
  static std::uint8_t mask(std::size_t model) { return static_cast<std::uint8_t>(0x11 * (model + 1)); }

  PreparedModel plan(std::size_t model) {
    const auto load = [&] {
      return models_[model].fragment.prepare({.slots = kSlots, .forms = {kHostHost, kHostDevice}});
    };
    for (;;) {
      std::optional<PreparedModel> plan = cache_.get(keys_[model], load, in_a_minute());
      if (plan) return *plan;
    }
  }

  void forget(std::size_t model) {
    try {
      cache_.forget(keys_[model]);
    } catch (const Error& error) {
      if (error.code() != ErrorCode::busy) throw;  // It is being loaded.
    }
  }

  void check(const std::vector<std::uint8_t>& output, std::size_t model, const std::vector<std::uint8_t>& input,
             Tally& tally) {
    if (output == xored(input, mask(model))) {
      ++tally.answered;
    } else {
      tally.note("An answer is wrong.");
    }
  }

  void request(std::mt19937_64& random, Tally& tally) {
    const std::size_t model = random() % kModels;
    const std::uint64_t kind = random() % 1000;
    PreparedModel pool = plan(model);
    const std::vector<std::uint8_t> input = fresh_bytes(bytes(model), random());
    const Deadline deadline =
        kind < 100 ? std::chrono::steady_clock::now() + std::chrono::microseconds(random() % 200) : in_a_minute();
    std::optional<ModelSlot> slot = kind % 2 == 0 ? pool.acquire(deadline) : pool.try_acquire();
    if (!slot && kind >= 100) slot = pool.acquire(deadline);
    if (!slot) {
      ++tally.late;
      return;
    }
    std::ranges::copy(input, slot->input<std::uint8_t>(0).begin());
    if (kind < 700) {
      Inference run = std::move(*slot).submit();
      check(result(run), model, input, tally);
    } else if (kind < 760) {
      static_cast<void>(std::move(*slot).submit());
      ++tally.dropped;
    } else if (kind < 820) {
      cancel(std::move(*slot).submit(), model, input, tally);
    } else if (kind < 880) {
      follow(std::move(*slot), pool.context(), random(), model, input, tally);
    } else if (kind < 940) {
      Inference run = std::move(*slot).submit({.outputs = Side::device});
      const DeviceTensor output = run.tensor(0);
      { const Inference dropped(std::move(run)); }
      check(values(output), model, input, tally);
    } else {
      Inference run = std::move(*slot).submit();
      run.completion().then([&tally] { ++tally.called; });
      check(result(run), model, input, tally);
    }
  }

  void finish(Inference& run, std::size_t model, const std::vector<std::uint8_t>& input, Tally& tally) {
    try {
      check(result(run), model, input, tally);
    } catch (const Error& error) {
      if (error.code() == ErrorCode::cancelled) {
        ++tally.cancelled;
      } else if (error.code() == ErrorCode::failed) {
        ++tally.failed;
      } else {
        throw;
      }
    }
  }

  void cancel(Inference run, std::size_t model, const std::vector<std::uint8_t>& input, Tally& tally) {
    const bool is_cancelled = run.completion().cancel();
    finish(run, model, input, tally);
    if (is_cancelled != (run.completion().poll() == CompletionStatus::cancelled))
      tally.note("A run has another outcome than its cancellation told.");
  }

  void follow(ModelSlot slot, const Context& context, std::uint64_t choice, std::size_t model,
              const std::vector<std::uint8_t>& input, Tally& tally) {
    CompletionSource source(context, "source");
    Inference run = std::move(slot).submit({.after = {source.completion()}});
    switch (choice % 4) {
      case 0:
      case 1:
        static_cast<void>(source.complete());
        break;
      case 2:
        static_cast<void>(source.fail(nullptr));
        break;
      default:
        static_cast<void>(run.completion().cancel());
    }
    finish(run, model, input, tally);
  }

  Context context_ = Context::open(test_device());
  std::vector<XorModel> models_;
  std::vector<PlanKey> keys_;
  PlanCache cache_{PlanCacheOptions{.max_plans = kModels, .kept_misses = 16}};
};

std::uint64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::uint64_t total = 0;
  std::uint64_t resident = 0;
  file >> total >> resident;
  constexpr std::uint64_t kPage = 4096;
  return resident * kPage;
}

}  // namespace

TEST_CASE("Thousands of requests of many threads are all answered right and leave nothing",
          "[serving][concurrency][thread][R18][R21][R23][case-8]") {
  Server server;
  Tally tally;
  const std::uint64_t requests = requests_asked_for(200'000);
  server.serve(requests, 1, tally);
  INFO(tally.first_wrong);
  CHECK(tally.wrong == 0);
  CHECK(tally.total() == requests);
  // Each kind of request was among them.
  for (const auto* count : {&tally.answered, &tally.dropped, &tally.cancelled, &tally.failed, &tally.called})
    CHECK(*count > 0);
  CHECK(server.cache_statistics().evictions > 0);
  CHECK(server.settle());
  const ContextStatistics statistics = server.context().statistics();
  CHECK(statistics.slots.leased == 0);
  CHECK(statistics.slots.in_flight == 0);
  CHECK(statistics.callback_failures == 0);
  // Those too that were in flight when their plan went.
  const RunCounters& runs = statistics.slots.runs;
  CHECK(runs.submitted == runs.completed + runs.failed + runs.cancelled);
}

TEST_CASE("A server that has served long takes no more memory than one that has warmed up",
          "[serving][concurrency][thread][long]") {
  constexpr std::uint64_t kMiB = 1 << 20;
  constexpr std::uint64_t kWarmUp = 100'000;
  const std::uint64_t requests = requests_asked_for(200'000);
  // glibc gives threads arenas of their own, each with pieces of its own: a driver that 16 threads make and destroy
  // graphs of without weft takes 9 MiB so.
  REQUIRE(::mallopt(M_ARENA_MAX, 1) == 1);
  Server server;
  Tally tally;
  std::int64_t blocks = 0;
  std::uint64_t resident = 0;
  MemoryStatistics memory;
  bool is_settled = true;
  bool is_back = false;
  std::int64_t left = 0;
  std::uint64_t grown = 0;
  MemoryStatistics last;
  server.serve(requests, 1, tally, kWarmUp, [&] {
    is_settled = server.settle() && is_settled;
    if (blocks == 0) {
      blocks = live_blocks();
      resident = resident_bytes();
      memory = server.context().memory();
    } else {
      is_back = eventually([&] { return live_blocks() <= blocks; });
      left = live_blocks() - blocks;
      grown = resident_bytes() - std::min(resident, resident_bytes());
      last = server.context().memory();
    }
  });
  INFO(tally.first_wrong);
  CHECK(tally.wrong == 0);
  CHECK(tally.total() == requests);
  CHECK(is_settled);
  INFO("There are " << left << " blocks more than after the warm-up.");
  CHECK(is_back);
  INFO("The process grew by " << grown << " bytes.");
  // The memory of a host device is the process's own, and what is free of it is in pieces.
  CHECK(grown <= (test_device().kind == Device::Kind::host ? 16 : 1) * kMiB);
  CHECK(last.reserved.live_bytes == memory.reserved.live_bytes);
  CHECK(last.staging.live_bytes == memory.staging.live_bytes);
}

}  // namespace weft::test
