#include "catch.h"
#include "device/faults.h"
#include "device/registry.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include <weft/plan_cache.h>
#include <weft/weft.h>

#include <atomic>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kBytes = 64;

/// One definition, whose fragments are y = x ^ mask, made anew each time.
struct Masks {
  explicit Masks(const Context& context = open_context())
      : test(context),
        x(test.session.allocate<std::uint8_t>({kBytes}, {.label = "x"})),
        y(test.session.allocate<std::uint8_t>({kBytes}, {.label = "y"})),
        z(test.session.allocate<std::uint8_t>({kBytes}, {.label = "z"})),
        shared(test.session.allocate<std::uint8_t>({kBytes}, {.label = "s", .placement = Placement::shared})),
        same_name(test.session.load(test::xor_bytes)),
        model(test.freeze()) {}

  [[nodiscard]] ModelFragment fragment(std::uint64_t mask) const {
    // Two bytes of the mask, so that there are many: one in each half.
    const Region low = x.slice(0, kBytes / 2);
    const Region high = x.slice(kBytes / 2, kBytes / 2);
    return model.fragment(
        trusted,
        {.inputs = {x},
         .outputs = {y},
         .commands = {test.xor_of(low, y.slice(0, kBytes / 2), static_cast<std::uint8_t>(mask)),
                      test.xor_of(high, y.slice(kBytes / 2, kBytes / 2), static_cast<std::uint8_t>(mask >> 8))},
         .label = "mask " + std::to_string(mask)});
  }

  TestSession test;
  TypedRegion<std::uint8_t> x;
  TypedRegion<std::uint8_t> y;
  TypedRegion<std::uint8_t> z;
  TypedRegion<std::uint8_t> shared;
  Kernel<In<std::uint8_t>, Out<std::uint8_t>, std::uint64_t, std::uint8_t> same_name;
  ModelDefinition model;
};

std::vector<std::uint8_t> masked(std::vector<std::uint8_t> bytes, std::uint64_t mask) {
  for (std::size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::uint8_t>(bytes[i] ^ (i < kBytes / 2 ? mask : mask >> 8));
  return bytes;
}

PreparedModel get(PlanCache& cache, const ModelFragment& fragment, const PrepareOptions& options = {}) {
  return cache.get(fragment, options, in_a_minute()).value();
}

bool answers(PreparedModel model, std::uint64_t mask) {
  const std::vector<std::uint8_t> input = fresh_bytes(kBytes, mask);
  return infer(model, input) == masked(input, mask);
}

PlanKey named(const std::string& name) {
  PlanKey key = PlanKey().add("name", name);
  key.set_label(name);
  return key;
}

}  // namespace

TEST_CASE("A cache without room for a plan is refused", "[serving][plan-cache][R35]") {
  const Error none = refusal([] { const PlanCache cache({.max_plans = 0}); });
  CHECK(none.code() == ErrorCode::invalid);
  CHECK(none.sentence() == "A plan cache has room for at least 1 plan; 0 are asked for.");
  CHECK(refusal([] { const PlanCache cache({.max_bytes = 0}); }).code() == ErrorCode::invalid);
  PlanCache cache;
  CHECK(refusal([&] { static_cast<void>(cache.get(named("a"), {}, in_a_minute())); }).code() == ErrorCode::invalid);
}

TEST_CASE("Plans that differ in one thing give each its own result", "[serving][plan-cache][R35][case-34]") {
  const Masks masks;
  PlanCache cache;
  for (int round = 0; round < 2; ++round) {
    for (const std::uint64_t mask : {std::uint64_t{0x0102}, std::uint64_t{0x0103}}) {
      INFO("round " << round << ", mask " << mask);
      CHECK(answers(get(cache, masks.fragment(mask)), mask));
    }
  }
  CHECK(get(cache, masks.fragment(0x0102), {.slots = 2}).slots() == 2);
  const PlanCacheStatistics statistics = cache.statistics();
  CHECK(statistics.hits == 2);
  CHECK(statistics.misses == 3);
  CHECK(statistics.misses_by_reason == PlanMissCounters{.first = 3, .evicted = 0, .replaced = 0, .failed = 0});
  const std::vector<PlanMiss> misses = cache.recent_misses();
  REQUIRE(misses.size() == 3);
  CHECK(misses[0] == PlanMiss{.label = "mask 258", .reason = MissReason::first, .nearest = "", .difference = ""});
  CHECK(misses[1].nearest == "mask 258");
  CHECK(misses[1].difference == "commands[0] scalars");
  CHECK(misses[2].nearest == "mask 258");
  CHECK(misses[2].difference == "slots");
}

TEST_CASE("Many plans pass through a small cache and equal ones are hits",
          "[serving][plan-cache][R35][case-35][long]") {
  const std::uint64_t kPlans = on_cuda() ? 1000 : 10'000;
  const Masks masks;
  PlanCache cache({.max_plans = 64});
  for (std::uint64_t mask = 0; mask < kPlans; ++mask) {
    const PreparedModel model = get(cache, masks.fragment(mask));
    if (mask % 500 == 0) CHECK(answers(model, mask));
    if (cache.statistics().plans > 64) FAIL("there are more plans than the cache takes");
  }
  const PlanCacheStatistics full = cache.statistics();
  CHECK(full.plans == 64);
  CHECK(full.misses == kPlans);
  CHECK(full.evictions == kPlans - 64);
  CHECK(full.hits == 0);
  const std::uint64_t bytes = masks.test.context.memory().reserved.live_bytes;
  CHECK(bytes == 64 * (bytes / 64));
  for (int i = 0; i < 100; ++i) CHECK(answers(get(cache, masks.fragment(kPlans)), kPlans));
  const PlanCacheStatistics statistics = cache.statistics();
  CHECK(statistics.hits == 99);
  CHECK(statistics.misses == kPlans + 1);
  CHECK(statistics.plans == 64);
  CHECK(eventually([&] { return masks.test.context.memory().reserved.live_bytes == bytes; }));
}

TEST_CASE("What a plan does not share takes exactly one fresh build and the old one still runs",
          "[serving][plan-cache][R35][case-37]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  const Masks masks;
  PlanCache cache;
  const auto fragment = [&](std::vector<Command> commands) {
    return masks.model.fragment(trusted, {.inputs = {masks.x}, .outputs = {masks.y}, .commands = std::move(commands)});
  };
  const auto first = masks.test.xor_of(masks.x, masks.z, 1);
  const auto second = masks.test.xor_of(masks.z, masks.y, 2);
  const std::vector<ModelFragment> variants{
      fragment({first, second}),
      fragment({masks.test.xor_of(masks.x, masks.z, 4), second}),  // a parameter
      fragment({first, second, fill(masks.z, 0)}),                 // one more command
      fragment({masks.test.xor_of(masks.x, masks.y, 3)}),          // other addresses
      fragment({first, Command(second).after({0})}),               // another order
      fragment({masks.same_name(workload(kBytes), masks.x, masks.z, kBytes, std::uint8_t{1}), second}),      // kernel
      fragment({masks.test.xor_of(masks.x, masks.shared, 1), masks.test.xor_of(masks.shared, masks.y, 2)}),  // memory
  };
  PreparedModel old = get(cache, variants.front());
  for (std::size_t i = 1; i < variants.size(); ++i) {
    INFO("variant " << i);
    const std::uint64_t built = counting->count(Verb::instantiate);
    PreparedModel model = get(cache, variants[i]);
    static_cast<void>(get(cache, variants[i]));
    CHECK(counting->count(Verb::instantiate) == built + 1);
    const std::vector<std::uint8_t> input = fresh_bytes(kBytes, i);
    CHECK(infer(model, input) == xored(input, i == 1 ? 6 : 3));
    CHECK(infer(old, input) == xored(input, 3));
  }
  int tries = 0;
  const Error error = refusal([&] {
    static_cast<void>(cache.get(
        named("bad"),
        [&]() -> PreparedModel {
          ++tries;
          throw Error(ErrorCode::unsupported, "This plan cannot be.");
        },
        in_a_minute()));
  });
  CHECK(error.code() == ErrorCode::unsupported);
  CHECK(tries == 1);
}

TEST_CASE("A plan that is let go of with a run in flight finishes it", "[serving][plan-cache][R35][case-38]") {
  const int kRounds = on_cuda() ? 1000 : 200;
  TestSession test;
  const auto x = test.session.allocate<std::uint32_t>({1}, {.label = "x"});
  const auto y = test.session.allocate<std::uint32_t>({1}, {.label = "y"});
  const ModelDefinition model = test.freeze();
  const auto fragment = [&](std::uint64_t nanoseconds) {
    return model.fragment(
        trusted,
        {.inputs = {x}, .outputs = {y}, .commands = {test.slow_copy(grid(1), x, y, std::uint64_t{1}, nanoseconds)}});
  };
  PlanCache cache({.max_plans = 2});
  const ModelFragment slow = fragment(300'000);
  const ModelFragment quick = fragment(0);
  const auto start = [&](const ModelFragment& of, std::uint32_t value) {
    PreparedModel plan = get(cache, of);
    ModelSlot slot = plan.acquire(in_a_minute()).value();
    slot.input(x)[0] = value;
    return std::move(slot).submit();
  };
  for (int round = 0; round < kRounds; ++round) {
    const auto value = static_cast<std::uint32_t>(round);
    std::optional<Inference> run = start(slow, value);
    CHECK(refusal([&] { static_cast<void>(cache.evict(PlanKey::of(slow))); }).code() == ErrorCode::busy);
    CHECK(cache.forget(PlanKey::of(slow)));
    Inference other = start(quick, value + 1);
    if (round % 2 == 0) {
      REQUIRE(run->wait(in_a_minute()));
      CHECK(run->output(y)[0] == value);
    } else {
      run.reset();  // Nobody looks; it finishes all the same.
    }
    REQUIRE(other.wait(in_a_minute()));
    CHECK(other.output(y)[0] == value + 1);
  }
  CHECK(cache.statistics().plans == 1);
  CHECK(eventually([&] {
    return test.context.memory().graphs.live_bytes == get(cache, quick).memory_bytes() -
                                                          test.context.memory().reserved.live_bytes -
                                                          test.context.memory().staging.live_bytes;
  }));
}

TEST_CASE("Only the bad ones of many requests fail", "[serving][plan-cache][R35][case-50]") {
  const MemoryBudget budget(1 << 20);
  const Context context = open_context({.allocator = {}, .budget = budget});
  TestSession test(context);
  const auto x = test.session.allocate<std::uint8_t>({kBytes}, {.label = "x"});
  const auto y = test.session.allocate<std::uint8_t>({kBytes}, {.label = "y"});
  const Region huge = test.session.allocate(2 << 20, {.label = "huge"});
  const ModelDefinition model = test.freeze();
  const auto fragment = [&](std::uint8_t mask) {
    return model.fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, y, mask)}});
  };
  const auto serve = [&](PlanCache& cache, std::uint8_t mask) {
    PreparedModel plan = get(cache, fragment(mask));
    const std::vector<std::uint8_t> input = fresh_bytes(kBytes, mask);
    CHECK(infer(plan, input) == xored(input, mask));
    return plan;
  };
  PlanCache cache({.max_plans = 2});
  static_cast<void>(serve(cache, 1));

  const Error over = refusal(
      [&] { static_cast<void>(get(cache, model.fragment(trusted, {.outputs = {y}, .commands = {fill(huge, 1)}}))); });
  CHECK(over.code() == ErrorCode::invalid);
  const Error bad = refusal([&] {
    const Region outside{x.session, x.allocation, kBytes - 1, 2};
    static_cast<void>(get(cache, model.fragment(trusted, {.outputs = {y}, .commands = {fill(outside, 1)}})));
  });
  CHECK(bad.code() == ErrorCode::invalid);
  {
    const PreparedModel one = serve(cache, 2);
    const PreparedModel two = serve(cache, 3);
    const Error full = refusal([&] { static_cast<void>(get(cache, fragment(4))); });
    CHECK(full.code() == ErrorCode::busy);
    CHECK(contains(full.sentence(), "all 2 places are pinned, being loaded or in use."));
  }
  for (std::uint8_t mask = 10; mask < 20; ++mask) static_cast<void>(serve(cache, mask));
  CHECK(cache.statistics().failed == 1);
}

TEST_CASE("Pins and handles and loads keep a cache full", "[serving][plan-cache][R35]") {
  const Masks masks;
  PlanCache cache({.max_plans = 1});
  const PlanKey first = PlanKey::of(masks.fragment(1));
  std::optional<PreparedModel> held = get(cache, masks.fragment(1));
  const auto check_full = [&] {
    CHECK(refusal([&] { static_cast<void>(get(cache, masks.fragment(2))); }).code() == ErrorCode::busy);
    CHECK(refusal([&] { static_cast<void>(cache.evict(first)); }).code() == ErrorCode::busy);
    CHECK(cache.statistics().plans == 1);
  };
  check_full();
  REQUIRE(cache.pin(first));
  held.reset();
  check_full();
  cache.unpin(first);
  CHECK(refusal([&] { cache.unpin(first); }).code() == ErrorCode::invalid);
  CHECK(answers(get(cache, masks.fragment(2)), 2));
  CHECK(!cache.evict(first));
  CHECK(!cache.forget(first));
  const Error loading = refusal([&] {
    static_cast<void>(cache.evict(PlanKey::of(masks.fragment(2))));
    static_cast<void>(cache.get(
        named("outer"), [&] { return get(cache, masks.fragment(3)); }, in_a_minute()));
  });
  CHECK(loading.code() == ErrorCode::busy);
}

TEST_CASE("A cache holds to its bytes", "[serving][plan-cache][R35]") {
  const Masks masks;
  const std::uint64_t bytes = masks.fragment(1).required_bytes();
  PlanCache cache({.max_plans = 64, .max_bytes = 3 * bytes});
  for (std::uint64_t mask = 1; mask <= 10; ++mask) {
    CHECK(answers(get(cache, masks.fragment(mask)), mask));
    CHECK(cache.statistics().bytes <= 3 * bytes);
  }
  CHECK(cache.statistics().plans >= 2);
  CHECK(cache.statistics().plans <= 4);
  const Error error = refusal([&] { static_cast<void>(get(cache, masks.fragment(1), {.slots = 16})); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.what(), "making room in a plan cache"));
  const Error loaded = refusal([&] {
    static_cast<void>(cache.get(
        named("large"), [&] { return masks.fragment(1).prepare({.slots = 16}); }, in_a_minute()));
  });
  CHECK(loaded.code() == ErrorCode::invalid);
  CHECK(answers(get(cache, masks.fragment(11)), 11));
}

TEST_CASE("A plan is loaded once for all who ask and its failure is shared and forgotten",
          "[serving][plan-cache][R35][B17][thread]") {
  constexpr int kThreads = 6;
  const Masks masks;
  PlanCache cache;
  std::promise<void> begun;
  std::promise<void> go_on;
  std::atomic<int> loads{0};
  std::atomic<int> failed{0};
  const PlanCache::Loader loader = [&]() -> PreparedModel {
    ++loads;
    begun.set_value();
    go_on.get_future().wait();
    throw Error(ErrorCode::io, "There is no such file.");
  };
  const auto ask = [&] {
    try {
      static_cast<void>(cache.get(named("a"), loader, in_a_minute()));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::io) ++failed;
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back(ask);
  begun.get_future().wait();
  for (int i = 1; i < kThreads; ++i) threads.emplace_back(ask);
  CHECK(!cache.get(named("a"), loader, past()).has_value());
  CHECK(eventually([&] { return cache.statistics().hits == kThreads; }));
  go_on.set_value();
  for (std::thread& thread : threads) thread.join();
  CHECK(loads.load() == 1);
  CHECK(failed.load() == kThreads);
  CHECK(answers(cache
                    .get(
                        named("a"), [&] { return masks.fragment(5).prepare(); }, in_a_minute())
                    .value(),
                5));
  const PlanCacheStatistics statistics = cache.statistics();
  CHECK(statistics.failed == 1);
  CHECK(statistics.misses_by_reason == PlanMissCounters{.first = 1, .evicted = 0, .replaced = 0, .failed = 1});
}

TEST_CASE("A key that its own loader asks for is refused", "[serving][plan-cache][R35][B21]") {
  const Masks masks;
  PlanCache cache;
  const PlanCache::Loader again = [&]() -> PreparedModel {
    return cache
        .get(
            named("b"),
            [&] { return cache.get(named("a"), {[&] { return masks.fragment(1).prepare(); }}, in_a_minute()).value(); },
            in_a_minute())
        .value();
  };
  const Error error = refusal([&] { static_cast<void>(cache.get(named("a"), again, in_a_minute())); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The plan \"a\" is asked for by a loader that it is loaded by or waits for.");
  CHECK(cache.statistics().plans == 0);
}

TEST_CASE("A replaced plan finishes its runs and later requests see the new one", "[serving][plan-cache][R35][swap]") {
  const Masks old_model;
  const Masks new_model;
  PlanCache cache;
  const auto load_old = [&] { return old_model.fragment(1).prepare({.slots = 2}); };
  PreparedModel old = cache.get(named("m"), load_old, in_a_minute()).value();
  Inference run = submit(old, fresh_bytes(kBytes, 1));
  const Error refused = refusal([&] {
    static_cast<void>(cache.replace(named("m"), []() -> PreparedModel { throw Error(ErrorCode::io, "No file."); }));
  });
  CHECK(refused.code() == ErrorCode::io);
  CHECK(answers(cache.get(named("m"), load_old, in_a_minute()).value(), 1));
  const PreparedModel replaced = cache.replace(named("m"), [&] {
    CHECK(answers(cache.get(named("m"), load_old, in_a_minute()).value(), 1));  // Served until the new one is there.
    CHECK(refusal([&] { static_cast<void>(cache.replace(named("m"), load_old)); }).code() == ErrorCode::busy);
    return new_model.fragment(2).prepare();
  });
  CHECK(answers(replaced, 2));
  CHECK(answers(cache.get(named("m"), load_old, in_a_minute()).value(), 2));
  CHECK(result(run) == masked(fresh_bytes(kBytes, 1), 1));
  CHECK(answers(old, 1));
  const PlanCacheStatistics statistics = cache.statistics();
  CHECK(statistics.plans == 1);
  CHECK(statistics.misses_by_reason == PlanMissCounters{.first = 1, .evicted = 0, .replaced = 2, .failed = 0});
  CHECK(answers(cache.replace(named("n"), load_old), 1));  // What is not there is loaded.
}

TEST_CASE("A budget that is short evicts idle plans of its contexts", "[serving][plan-cache][R32][R35]") {
  const MemoryBudget budget(1 << 20);
  const Context context = open_context({.allocator = {}, .budget = budget});
  const Masks masks(context);
  const Masks others;
  PlanCache cache;
  static_cast<void>(get(cache, others.fragment(1)));
  static_cast<void>(get(cache, masks.fragment(1)));
  const PreparedModel used = get(cache, masks.fragment(2));
  const std::uint64_t bytes = budget.used_bytes();
  const auto reserve = [&](std::uint64_t more) {
    return eventually([&] {
      try {
        return budget.reserve(more).bytes() == more;
      } catch (const Error& error) {
        if (error.code() != ErrorCode::busy) throw;
        return false;
      }
    });
  };
  CHECK(reserve(budget.ceiling_bytes() - bytes + 1));
  CHECK(cache.statistics().evictions == 1);
  CHECK(cache.statistics().plans == 2);
  CHECK(refusal([&] { static_cast<void>(budget.reserve(budget.ceiling_bytes())); }).code() == ErrorCode::busy);
  static_cast<void>(get(cache, masks.fragment(1)));
  CHECK(cache.statistics().misses_by_reason.evicted == 1);
  CHECK(cache.recent_misses().back().reason == MissReason::evicted);
  CHECK(to_string(MissReason::evicted) == "evicted");
}

TEST_CASE("Threads share a small cache and each gets its own results", "[serving][plan-cache][R35][thread]") {
  constexpr std::size_t kThreads = 8;
  constexpr int kRounds = 60;
  const Masks masks;
  PlanCache cache({.max_plans = 4});
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        const std::uint64_t mask = (static_cast<std::uint64_t>(round) * 5 + t) % 7;
        const bool is_right = eventually([&] {
          try {
            return answers(get(cache, masks.fragment(mask)), mask);
          } catch (const Error& error) {
            if (error.code() != ErrorCode::busy) throw;
            return false;
          }
        });
        if (is_right) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(right.load() == kThreads * kRounds);
  CHECK(cache.statistics().plans <= 4);
}

TEST_CASE("Who waits for a plan gets it though it is forgotten as soon as it is loaded",
          "[serving][plan_cache][R35][thread]") {
  const XorModel model(64);
  PlanCache cache;
  const PlanKey key = PlanKey().add("model", "xor");
  std::atomic<bool> is_over{false};
  std::atomic<int> empty{0};
  std::atomic<int> served{0};
  std::thread forgetting([&] {
    while (!is_over) {
      try {
        cache.forget(key);
      } catch (const Error&) {
        std::this_thread::yield();  // It is being loaded.
      }
    }
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 100; ++i) {
        ++(cache.get(
               key, [&] { return model.fragment.prepare(); }, in_a_minute())
               ? served
               : empty);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  is_over = true;
  forgetting.join();
  CHECK(empty == 0);
  CHECK(served == 300);
}

}  // namespace weft::test
