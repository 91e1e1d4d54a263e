#include "catch.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/model_fixture.h"
#include <weft/error.h>
#include <weft/log.h>
#include <weft/residency.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCeiling = 100;

UnitMemory bytes_of(std::uint64_t bytes) { return {.peak_bytes = bytes, .resident_bytes = bytes}; }

/// Loads a number under a key; it takes so many bytes.
UnitLease<int> load_number(Residency& residency, const std::string& key, std::uint64_t bytes, int value = 0) {
  return residency
      .load(
          key, bytes_of(bytes), [&] { return value; }, in_a_minute())
      .value();
}

bool is_loaded(Residency& residency, const std::string& key) { return residency.find<int>(key).has_value(); }

/// Something whose destructor takes until it is let go on.
class Slow {
 public:
  Slow(std::promise<void>* begun, std::shared_future<void> go_on) : begun_(begun), go_on_(std::move(go_on)) {}
  Slow(Slow&& other) noexcept : begun_(std::exchange(other.begun_, nullptr)), go_on_(std::move(other.go_on_)) {}
  Slow& operator=(Slow&&) = delete;
  ~Slow() {
    if (begun_ == nullptr) return;
    begun_->set_value();
    go_on_.wait();
  }

 private:
  std::promise<void>* begun_;
  std::shared_future<void> go_on_;
};

/// Something that calls at its end.
class AtEnd {
 public:
  explicit AtEnd(std::function<void()> call) : call_(std::move(call)) {}
  AtEnd(const AtEnd&) = delete;
  AtEnd& operator=(const AtEnd&) = delete;
  ~AtEnd() { call_(); }

 private:
  std::function<void()> call_;
};

/// y = x ^ mask ^ w, with a weight of its own, all of it charged to the budget.
struct MaskModel {
  MaskModel(const Context& context, const MemoryBudget& budget, std::uint64_t bytes, std::uint8_t mask)
      : model([&] {
          ModelSession session(context.device(), {.budget = budget});
          const auto kernel = session.load(test::xor_bytes);
          const std::vector<std::uint8_t> values(bytes, mask);
          const auto w =
              session.weight<std::uint8_t>({TensorDesc(DType::u8, {bytes}), std::as_bytes(std::span(values)), "w"});
          const auto y = session.allocate<std::uint8_t>({bytes}, {.label = "y"});
          return std::move(session)
              .freeze(context)
              .fragment(trusted, {.outputs = {y}, .commands = {kernel(workload(bytes), w, y, bytes, std::uint8_t{0})}})
              .prepare();
        }()) {}
  [[nodiscard]] bool is_idle() const { return model.is_idle(); }

  PreparedModel model;
};

}  // namespace

TEST_CASE("A unit is loaded once and found by its key", "[serving][residency][R34]") {
  const MemoryBudget budget(kCeiling);
  Residency residency(budget);
  CHECK(residency.budget() == budget);
  int loads = 0;
  const auto load = [&] {
    return residency
        .load(
            "a", bytes_of(10), [&] { return ++loads; }, in_a_minute())
        .value();
  };
  CHECK(*load() == 1);
  CHECK(*load() == 1);
  CHECK(**residency.find<int>("a") == 1);
  CHECK(!residency.find<int>("b"));
  CHECK(budget.used_bytes() == 10);
  const ResidencyStatistics statistics = residency.statistics();
  CHECK(statistics ==
        ResidencyStatistics{.units = 1, .bytes = 10, .hits = 1, .misses = 1, .evictions = 0, .failed = 0});
}

TEST_CASE("The peak is reserved while a unit is loaded and shrinks to what is resident",
          "[serving][residency][R34][T43]") {
  const MemoryBudget budget(kCeiling);
  Residency residency(budget);
  std::uint64_t during = 0;
  const auto lease = residency.load(
      "a", {.peak_bytes = 80, .resident_bytes = 30},
      [&] {
        during = budget.used_bytes();
        return 1;
      },
      in_a_minute());
  CHECK(during == 80);
  CHECK(budget.used_bytes() == 30);
  CHECK(lease.has_value());
}

TEST_CASE("A unit that cannot be is refused before its loader runs", "[serving][residency][R32][R34]") {
  const MemoryBudget budget(kCeiling);
  Residency residency(budget);
  int loads = 0;
  const auto load = [&](UnitMemory memory) {
    return refusal([&] {
      static_cast<void>(residency.load(
          "a", memory, [&] { return ++loads; }, in_a_minute()));
    });
  };
  const Error none = load({.peak_bytes = 10, .resident_bytes = 0});
  CHECK(none.code() == ErrorCode::invalid);
  CHECK(none.sentence() == "The unit \"a\" has 0 resident bytes; it has at least 1, and at most its peak of 10.");
  CHECK(load({.peak_bytes = 10, .resident_bytes = 11}).code() == ErrorCode::invalid);
  CHECK(load(bytes_of(kCeiling + 1)).code() == ErrorCode::invalid);
  const MemoryReservation others = budget.reserve(1);
  CHECK(load(bytes_of(kCeiling)).code() == ErrorCode::busy);
  CHECK(loads == 0);
  CHECK(budget.used_bytes() == 1);
  CHECK(residency.statistics().units == 0);
}

TEST_CASE("A loader that throws leaves nothing and the next call loads anew", "[serving][residency][R34][T43]") {
  const MemoryBudget budget(kCeiling);
  Residency residency(budget);
  const auto load = [&](auto loader) {
    return residency.load("a", {.peak_bytes = 50, .resident_bytes = 20}, loader, in_a_minute());
  };
  const Error error =
      refusal([&] { static_cast<void>(load([]() -> int { throw Error(ErrorCode::io, "There is no such file."); })); });
  CHECK(error.code() == ErrorCode::io);
  CHECK(budget.used_bytes() == 0);
  CHECK_THROWS_AS(load([]() -> int { throw std::runtime_error("no"); }), std::runtime_error);
  CHECK(budget.used_bytes() == 0);
  CHECK(residency.statistics().failed == 2);
  CHECK(**load([] { return 7; }) == 7);
  CHECK(budget.used_bytes() == 20);
}

TEST_CASE("A key that holds another type is refused", "[serving][residency][R34]") {
  Residency residency{MemoryBudget(kCeiling)};
  static_cast<void>(load_number(residency, "a", 10));
  const Error error = refusal([&] {
    static_cast<void>(residency.load(
        "a", bytes_of(10), [] { return std::string(); }, in_a_minute()));
  });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The unit \"a\" is of another type than it is asked for as.");
  CHECK(refusal([&] { static_cast<void>(residency.find<std::string>("a")); }).code() == ErrorCode::invalid);
  CHECK(is_loaded(residency, "a"));
}

TEST_CASE("A lease or a pin or an owner who says so keeps a unit from eviction", "[serving][residency][R34][T43]") {
  const MemoryBudget budget(kCeiling);
  Residency residency(budget);
  CHECK(!residency.evict("a"));
  const auto check_kept = [&](const std::string& sentence) {
    const Error error = refusal([&] { static_cast<void>(residency.evict("a")); });
    CHECK(error.code() == ErrorCode::busy);
    CHECK(error.sentence() == sentence);
    CHECK(refusal([&] { static_cast<void>(budget.reserve(kCeiling)); }).code() == ErrorCode::busy);
    CHECK(budget.used_bytes() == 10);
  };
  {
    const UnitLease<int> lease = load_number(residency, "a", 10);
    const UnitLease<int> copy = lease;
    check_kept("The unit \"a\" is in use.");
  }
  REQUIRE(residency.pin("a"));
  REQUIRE(residency.pin("a"));
  residency.unpin("a");
  check_kept("The unit \"a\" is pinned.");
  residency.unpin("a");
  CHECK(refusal([&] { residency.unpin("a"); }).sentence() == "The unit \"a\" is not pinned.");
  CHECK(!residency.pin("b"));
  CHECK(residency.evict("a"));
  CHECK(budget.used_bytes() == 0);
  bool is_idle = false;
  static_cast<void>(residency.load(
      "a", bytes_of(10), [] { return 1; }, in_a_minute(), [&](const int&) { return is_idle; }));
  check_kept("The unit \"a\" is not idle.");
  is_idle = true;
  CHECK(residency.evict("a"));
  CHECK(budget.used_bytes() == 0);
}

TEST_CASE("The least recently used units go until the bytes fit", "[serving][residency][R32][T43]") {
  const MemoryBudget budget(kCeiling);
  Residency one(budget);
  Residency other(budget);
  static_cast<void>(load_number(one, "a", 30));
  static_cast<void>(load_number(other, "b", 30));
  static_cast<void>(load_number(one, "c", 30));
  static_cast<void>(load_number(one, "a", 30));  // Used again: b is the oldest now, then c.
  {
    const MemoryReservation taken = budget.reserve(40);
    CHECK(!is_loaded(other, "b"));
    CHECK(is_loaded(one, "c"));
    CHECK(is_loaded(one, "a"));
  }
  // Found in this order: c is older than a.
  const MemoryReservation taken = budget.reserve(60);
  CHECK(!is_loaded(one, "c"));
  CHECK(is_loaded(one, "a"));
  CHECK(one.statistics().evictions == 1);
  CHECK(other.statistics().evictions == 1);
}

TEST_CASE("A unit that grows evicts others and never itself", "[serving][residency][R34][T43]") {
  const MemoryBudget budget(kCeiling);
  Residency residency(budget);
  static_cast<void>(load_number(residency, "a", 40));
  const UnitLease<int> growing = load_number(residency, "b", 40);
  growing.resize(70);
  CHECK(!is_loaded(residency, "a"));
  CHECK(budget.used_bytes() == 70);
  CHECK(residency.statistics().bytes == 70);
  growing.resize(5);
  CHECK(budget.used_bytes() == 5);
  growing.resize(100);
  CHECK(refusal([&] { growing.resize(101); }).code() == ErrorCode::invalid);
  CHECK(refusal([&] { growing.resize(0); }).code() == ErrorCode::invalid);
  CHECK(budget.used_bytes() == 100);
  const UnitLease<int> single = residency
                                    .load(
                                        "c", [] { return 1; }, in_a_minute())
                                    .value();
  CHECK(refusal([&] { single.resize(1); }).sentence() ==
        "The unit's allocations are charged one by one; it has no charge of its own.");
}

TEST_CASE("A unit that is resized while it grows is charged what the last asks for",
          "[serving][residency][R32][R34][T43][thread]") {
  const MemoryBudget budget(kCeiling);
  Residency residency(budget);
  const UnitLease<int> growing = load_number(residency, "growing", 40);
  const UnitLease<int> same = residency.find<int>("growing").value();
  const auto load_idle = [&](std::uint64_t resized) {
    static_cast<void>(residency.load(
        "idle", bytes_of(40),
        [&] { return AtEnd([&same, resized] { std::thread([&] { same.resize(resized); }).join(); }); }, in_a_minute()));
  };
  for (const std::uint64_t meanwhile : {std::uint64_t{5}, std::uint64_t{45}}) {
    INFO("resized to " << meanwhile << " meanwhile");
    growing.resize(40);
    load_idle(meanwhile);
    growing.resize(70);  // Takes the place of the idle unit, whose end resizes this one on another thread.
    CHECK(budget.used_bytes() == 70);
    CHECK(residency.statistics().bytes == 70);
  }
}

TEST_CASE("Threads that resize one unit leave it charged what one of them asked for",
          "[serving][residency][R32][R34][thread]") {
  constexpr std::size_t kThreads = 4;
  const MemoryBudget budget(1000);
  Residency residency(budget);
  const UnitLease<int> unit = load_number(residency, "a", 1);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t round = 0; round < 500; ++round) {
        try {
          unit.resize(1 + (round * 37 + t * 101) % 200);
        } catch (const Error& error) {
          if (error.code() != ErrorCode::busy) throw;
        }
      }
      unit.resize(7);
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(budget.used_bytes() == 7);
  CHECK(residency.statistics().bytes == 7);
}

TEST_CASE("A residency goes behind the predicates and destructors that others run of it",
          "[serving][residency][R34][thread]") {
  const auto take_a_moment = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); };
  for (const bool in_destructor : {false, true}) {
    INFO("in a destructor " << in_destructor);
    const MemoryBudget budget(kCeiling);
    std::promise<void> begun;
    std::atomic<bool> has_ended{false};
    const auto slowly = [&] {
      begun.set_value();
      take_a_moment();
      has_ended = true;
    };
    std::optional<Residency> residency(budget);
    static_cast<void>(residency->load(
        "a", bytes_of(60),
        [&] {
          return AtEnd([&] {
            if (in_destructor) slowly();
          });
        },
        in_a_minute(),
        [&](const AtEnd&) {
          if (!in_destructor) slowly();
          return true;
        }));
    std::thread taking([&] { static_cast<void>(budget.reserve(50)); });
    CHECK(begun.get_future().wait_until(in_a_minute()) == std::future_status::ready);
    residency.reset();
    CHECK(has_ended.load());
    taking.join();
    CHECK(budget.used_bytes() == 0);
  }
}

TEST_CASE("A unit may let go of its residency while it is evicted", "[serving][residency][R34]") {
  const MemoryBudget budget(kCeiling);
  std::optional<Residency> residency(budget);
  static_cast<void>(residency->load(
      "a", bytes_of(60), [&] { return AtEnd([&] { residency.reset(); }); }, in_a_minute()));
  CHECK(budget.reserve(50).bytes() == 50);
  CHECK(!residency.has_value());
  CHECK(budget.used_bytes() == 0);
}

TEST_CASE("Evictions are told to the log", "[serving][residency][R38]") {
  const MemoryBudget budget(kCeiling);
  Residency residency(budget);
  std::vector<std::string> told;
  set_log_sink([&](const LogRecord& record) {
    if (record.level == LogLevel::debug)
      told.emplace_back(std::string(record.object) + ": " + std::string(record.message));
  });
  for (const char* key : {"a", "b"}) static_cast<void>(load_number(residency, key, 40));
  static_cast<void>(load_number(residency, "c", 40));
  CHECK(residency.evict("b"));
  set_log_sink({});
  CHECK(told ==
        std::vector<std::string>{"unit \"a\": The unit \"a\" is evicted.", "unit \"b\": The unit \"b\" is evicted."});
}

TEST_CASE("The charge of a unit holds until its destructor has finished and no lock is held meanwhile",
          "[serving][residency][R32][T43]") {
  const MemoryBudget budget(kCeiling);
  Residency residency(budget);
  std::promise<void> begun;
  std::promise<void> go_on;
  static_cast<void>(residency.load(
      "slow", bytes_of(90), [&] { return Slow(&begun, go_on.get_future().share()); }, in_a_minute()));
  std::thread evicting([&] { static_cast<void>(residency.evict("slow")); });
  begun.get_future().wait();
  CHECK(budget.used_bytes() == 90);
  CHECK(refusal([&] { static_cast<void>(budget.reserve(20)); }).code() == ErrorCode::busy);
  static_cast<void>(load_number(residency, "other", 10));
  CHECK(residency.statistics().units == 1);
  go_on.set_value();
  evicting.join();
  CHECK(budget.used_bytes() == 10);
}

TEST_CASE("A loader evicts others for its memory and not what it loads itself", "[serving][residency][R34]") {
  const MemoryBudget budget(kCeiling);
  Residency residency(budget);
  static_cast<void>(load_number(residency, "a", 60));
  const auto lease = residency.load(
      "b", bytes_of(30),
      [&] {
        const MemoryReservation more = budget.reserve(70);
        CHECK(refusal([&] { static_cast<void>(budget.reserve(1)); }).code() == ErrorCode::busy);
        return 1;
      },
      in_a_minute());
  CHECK(lease.has_value());
  CHECK(!is_loaded(residency, "a"));
  CHECK(budget.used_bytes() == 30);
}

TEST_CASE("A key that its own loader asks for is refused at whatever remove", "[serving][residency][B21]") {
  Residency residency{MemoryBudget(kCeiling)};
  const auto load = [&](const std::string& key, auto loader) {
    return *residency.load(key, loader, in_a_minute()).value();
  };
  const Error direct = refusal([&] { static_cast<void>(load("a", [&] { return load("a", [] { return 1; }); })); });
  CHECK(direct.code() == ErrorCode::invalid);
  CHECK(direct.sentence() == "The unit \"a\" is asked for by a loader that it is loaded by or waits for.");
  const Error indirect = refusal(
      [&] { static_cast<void>(load("a", [&] { return load("b", [&] { return load("a", [] { return 1; }); }); })); });
  CHECK(indirect.code() == ErrorCode::invalid);
  CHECK(load("a", [&] { return load("b", [] { return 2; }); }) == 2);
}

TEST_CASE("Loaders of two threads that wait for one another are told", "[serving][residency][B21][thread]") {
  Residency residency{MemoryBudget(kCeiling)};
  std::atomic<int> loading{0};
  std::atomic<int> refused{0};
  const auto load = [&](const std::string& own, const std::string& other) {
    try {
      static_cast<void>(residency.load(
          own,
          [&] {
            ++loading;
            while (loading.load() < 2) std::this_thread::yield();
            return *residency
                        .load(
                            other, [] { return 1; }, in_a_minute())
                        .value();
          },
          in_a_minute()));
    } catch (const Error& error) {
      if (error.code() == ErrorCode::invalid) ++refused;
    }
  };
  std::thread thread([&] { load("a", "b"); });
  load("b", "a");
  thread.join();
  CHECK(refused.load() == 2);  // Who finds the circle, and who waited for it.
  CHECK(residency.statistics().units == 0);
}

TEST_CASE("Who waits for a load has its outcome or nothing at the deadline", "[serving][residency][R34][thread]") {
  constexpr int kWaiters = 4;
  Residency residency{MemoryBudget(kCeiling)};
  for (const bool fails : {false, true}) {
    INFO("fails " << fails);
    const std::string key = fails ? "fails" : "loads";
    std::promise<void> begun;
    std::promise<void> go_on;
    std::atomic<int> loads{0};
    const auto loader = [&]() -> int {
      ++loads;
      begun.set_value();
      go_on.get_future().wait();
      if (fails) throw Error(ErrorCode::io, "There is no such file.");
      return 5;
    };
    std::atomic<int> served{0};
    std::atomic<int> failed{0};
    const std::uint64_t hits = residency.statistics().hits;
    const auto ask = [&] {
      try {
        if (**residency.load(key, loader, in_a_minute()) == 5) ++served;
      } catch (const Error& error) {
        if (error.code() == ErrorCode::io) ++failed;
      }
    };
    std::vector<std::thread> threads;
    threads.emplace_back(ask);
    begun.get_future().wait();
    CHECK(!residency.load(key, loader, past()).has_value());
    for (int i = 0; i < kWaiters; ++i) threads.emplace_back(ask);
    CHECK(eventually([&] { return residency.statistics().hits == hits + 1 + kWaiters; }));
    CHECK(refusal([&] { static_cast<void>(residency.evict(key)); }).sentence() ==
          "The unit \"" + key + "\" is being loaded.");
    go_on.set_value();
    for (std::thread& thread : threads) thread.join();
    CHECK(loads.load() == 1);
    CHECK(served.load() == (fails ? 0 : 1 + kWaiters));
    CHECK(failed.load() == (fails ? 1 + kWaiters : 0));
  }
}

TEST_CASE("Threads that load under one ceiling never pass it", "[serving][residency][R32][R34][T43][thread]") {
  constexpr std::size_t kThreads = 8;
  constexpr std::uint64_t kUnit = 8;
  const MemoryBudget budget(64);
  std::vector<std::uint64_t> most(kThreads, 0);
  std::atomic<int> served{0};
  {
    Residency residency(budget);
    std::vector<std::thread> threads;
    for (std::size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        for (std::size_t round = 0; round < 200; ++round) {
          const std::size_t key = (round * 7 + t * 3) % 16;
          const bool is_served = eventually([&] {
            try {
              const auto lease = residency.load(
                  std::to_string(key), bytes_of(kUnit), [&] { return std::make_unique<std::size_t>(key); },
                  in_a_minute());
              most[t] = std::max(most[t], budget.used_bytes());
              return **lease.value() == key;
            } catch (const Error& error) {
              if (error.code() != ErrorCode::busy) throw;
              return false;
            }
          });
          if (is_served) ++served;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(residency.statistics().bytes == budget.used_bytes());
  }
  CHECK(served.load() == kThreads * 200);
  for (const std::uint64_t used : most) CHECK(used <= 64);
  CHECK(budget.used_bytes() == 0);
}

TEST_CASE("A residency goes and its leased units and its budget live on", "[serving][residency][R33][R34]") {
  const MemoryBudget budget(kCeiling);
  std::optional<UnitLease<int>> lease;
  {
    Residency residency(budget);
    static_cast<void>(load_number(residency, "a", 10));
    lease = load_number(residency, "b", 20, 9);
    CHECK(budget.used_bytes() == 30);
  }
  CHECK(budget.used_bytes() == 20);
  CHECK(**lease == 9);
  CHECK(refusal([&] { static_cast<void>(budget.reserve(90)); }).code() == ErrorCode::busy);
  lease.reset();
  CHECK(budget.reserve(100).bytes() == 100);
}

TEST_CASE("Twenty models share a ceiling that a few of them fill", "[serving][residency][R34][T43]") {
  constexpr std::uint64_t kBytes = 64 << 10;
  constexpr int kModels = 20;
  const MemoryBudget budget(1 << 20);
  const Context context = open_context({.allocator = {}, .budget = budget});
  {
    Residency residency(budget);
    for (int round = 0; round < 2; ++round) {
      for (int i = 0; i < kModels; ++i) {
        INFO("round " << round << ", model " << i);
        const auto mask = static_cast<std::uint8_t>(i + 1);
        std::optional<UnitLease<MaskModel>> lease;
        REQUIRE(eventually([&] {  // Busy while what was evicted drains.
          try {
            lease = residency.load(
                std::to_string(i), [&] { return MaskModel(context, budget, kBytes, mask); }, in_a_minute());
            return true;
          } catch (const Error& error) {
            if (error.code() != ErrorCode::busy) throw;
            return false;
          }
        }));
        CHECK(budget.used_bytes() <= budget.ceiling_bytes());
        CHECK(infer((*lease)->model, {}) == std::vector<std::uint8_t>(kBytes, mask));
      }
    }
    const ResidencyStatistics statistics = residency.statistics();
    CHECK(statistics.units >= 2);
    CHECK(statistics.units < kModels);
    CHECK(statistics.evictions >= kModels);
  }
  CHECK(eventually([&] { return live(context) == std::vector<std::uint64_t>(3, 0) && budget.used_bytes() == 0; }));
}

TEST_CASE("A model with a run in flight stays and goes once it has finished", "[serving][residency][R34][host-only]") {
  HeldContext held({.allocator = {}, .budget = MemoryBudget(8 << 20)});
  Residency residency(MemoryBudget(1 << 20));
  std::optional<Inference> run;
  {
    auto lease = residency.load(
        "m", [&] { return XorModel(TestSession(held.context), 64, 0xff).fragment.prepare(); }, in_a_minute());
    held.device->hold();
    run = submit(**lease, fresh_bytes(64, 1));
  }
  const Error error = refusal([&] { static_cast<void>(residency.evict("m")); });
  CHECK(error.code() == ErrorCode::busy);
  held.device->release();
  CHECK(result(*run) == xored(fresh_bytes(64, 1), 0xff));
  CHECK(error.sentence() == "The unit \"m\" is not idle.");
  run.reset();
  CHECK(residency.evict("m"));
  CHECK(held.device->violations().empty());
}

}  // namespace weft::test
