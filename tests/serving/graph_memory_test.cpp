#include "graph_memory.h"

#include "catch.h"
#include "device/faults.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include <weft/error.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kBytes = 64;

/// A model of so many dispatches in a context with a budget.
struct LongModel {
  explicit LongModel(std::size_t dispatches, std::uint64_t ceiling = std::uint64_t{1} << 32)
      : budget(ceiling), context(open_context({.allocator = {}, .budget = budget})), fragment([&] {
          TestSession test(context);
          const auto x = test.session.allocate<std::uint32_t>({1}, {.label = "x"});
          const std::vector<Command> commands(dispatches, test.increment(grid(1), x, std::uint32_t{1}));
          return test.freeze().fragment(trusted,
                                        {.inputs = {x}, .outputs = {x}, .commands = commands, .label = "long"});
        }()) {}

  MemoryBudget budget;
  Context context;
  ModelFragment fragment;
};

std::uint32_t counted_from(PreparedModel& pool, std::uint32_t from) {
  ModelSlot slot = pool.acquire(in_a_minute()).value();
  slot.input<std::uint32_t>(0)[0] = from;
  Inference run = std::move(slot).submit();
  REQUIRE(run.wait(in_a_minute()));
  return run.output<std::uint32_t>(0)[0];
}

}  // namespace

TEST_CASE("The graphs of a model are charged as they are measured and counted apart", "[serving][graph-memory]") {
  const LongModel model(50);
  const std::uint64_t before = model.budget.used_bytes();
  std::optional<PreparedModel> pool = model.fragment.prepare({.slots = 3});
  const MemoryStatistics memory = model.context.memory();
  CHECK(memory.graphs.allocations == 3);
  CHECK(model.budget.used_bytes() - before ==
        memory.reserved.live_bytes + memory.staging.live_bytes + memory.graphs.live_bytes);
  CHECK(pool->memory_bytes() == model.budget.used_bytes() - before);
  pool.reset();
  CHECK(
      eventually([&] { return model.context.memory().graphs.live_bytes == 0 && model.budget.used_bytes() == before; }));
}

TEST_CASE("The host device's graphs take what it publishes", "[serving][graph-memory][host-only]") {
  // The commands, a copy in, a copy out, the completion; the last two may be one.
  for (const std::optional<MemoryBudget>& budget :
       {std::optional<MemoryBudget>(), std::optional(MemoryBudget(1 << 20))}) {
    const Context context = open_context({.allocator = {}, .budget = budget});
    const XorModel model(TestSession(context), kBytes, 0xff);
    const PreparedModel pool = model.fragment.prepare({.slots = 2});
    CHECK(context.memory().graphs.live_bytes == 2 * host_graph_bytes(pool.node_counts().total()));
    CHECK(context.memory().graphs.peak_bytes == context.memory().graphs.live_bytes);
  }
}

TEST_CASE("What graphs take is measured when it is first needed and then known", "[serving][graph-memory]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  const LongModel model(5);
  const auto graphs_of = [&](const auto& call) {
    const std::uint64_t before = counting->count(Verb::create_graph);
    call();
    return counting->count(Verb::create_graph) - before;
  };
  CHECK(counting->count(Verb::instantiate) == 0);
  CHECK(graphs_of([&] { static_cast<void>(model.fragment.required_bytes()); }) == 2);
  CHECK(graphs_of([&] { static_cast<void>(model.fragment.required_bytes({.slots = 2})); }) == 0);
  CHECK(graphs_of([&] { static_cast<void>(model.fragment.prepare()); }) == 1);
  CHECK(counting->count(Verb::launch) == 0);
}

TEST_CASE("A budget of exactly what a model needs takes it and one byte less is refused first",
          "[serving][graph-memory][case-32][R32]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  for (const bool is_separate : {false, true}) {
    INFO("separate allocations " << is_separate);
    const LongModel model(2000);
    const PrepareOptions options{.slots = 4, .separate_allocations = is_separate};
    const std::uint64_t need = model.fragment.required_bytes(options);
    const std::uint64_t room = model.budget.ceiling_bytes() - model.budget.used_bytes();
    const auto calls = [&] {
      return counting->count(Verb::allocate) + counting->count(Verb::allocate_pinned) +
             counting->count(Verb::create_graph);
    };
    {
      const MemoryReservation others = model.budget.reserve(room - need + 1);
      const std::uint64_t before = calls();
      const Error error = refusal([&] { static_cast<void>(model.fragment.prepare(options)); });
      CHECK(error.code() == ErrorCode::busy);
      CHECK(contains(error.what(), "for the slots of graph \"long\""));
      CHECK(calls() == before);
      CHECK(live(model.context) == std::vector<std::uint64_t>(3, 0));
    }
    for (const std::uint64_t more : {std::uint64_t{0}, std::uint64_t{64} << 20}) {
      const MemoryReservation others = model.budget.reserve(room - need - more);
      PreparedModel pool = model.fragment.prepare(options);
      CHECK(counted_from(pool, 1) == 2001);
      CHECK(pool.memory_bytes() <= 2 * need);  // Measured beyond the estimate, maybe.
    }
    CHECK(eventually([&] {
      static_cast<void>(model.context.memory());
      return model.budget.used_bytes() == model.budget.ceiling_bytes() - room;
    }));
    // Its context measures anew, and may find less.
    const LongModel small(2000, need / 2);
    CHECK(refusal([&] { static_cast<void>(small.fragment.prepare(options)); }).code() == ErrorCode::invalid);
  }
}

}  // namespace weft::test
