#include "catch.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include <weft/budget.h>
#include <weft/graph.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

/// What a refusal must leave as it was.
std::vector<std::uint64_t> state_of(const Context& context, const MemoryBudget& budget) {
  const MemoryStatistics memory = context.memory();
  return {budget.used_bytes(),          memory.requested.live_bytes, memory.requested.peak_bytes,
          memory.requested.allocations, memory.reserved.live_bytes,  memory.reserved.allocations,
          memory.staging.live_bytes,    memory.staging.allocations};
}

}  // namespace

TEST_CASE("A budget gives up to its ceiling and takes back what is destroyed", "[runtime][budget][R32]") {
  const MemoryBudget budget(100);
  CHECK(budget.ceiling_bytes() == 100);
  std::optional<MemoryReservation> first = budget.reserve(60);
  const MemoryReservation second = budget.reserve(40);
  CHECK(first->bytes() == 60);
  CHECK(budget.used_bytes() == 100);
  const MemoryReservation nothing = budget.reserve(0);
  CHECK(nothing.bytes() == 0);
  first.reset();
  CHECK(budget.used_bytes() == 40);
}

TEST_CASE("More than the ceiling is invalid and more than is left is busy", "[runtime][budget][R32]") {
  const MemoryBudget budget(100);
  const MemoryReservation some = budget.reserve(30);
  const Error invalid = refusal([&] { static_cast<void>(budget.reserve(101)); });
  CHECK(invalid.code() == ErrorCode::invalid);
  CHECK(invalid.sentence() == "101 bytes are more than the memory budget's ceiling of 100 bytes.");
  const Error busy = refusal([&] { static_cast<void>(budget.reserve(71)); });
  CHECK(busy.code() == ErrorCode::busy);
  CHECK(busy.sentence() == "71 bytes do not fit in the memory budget now: 30 of its 100 bytes are in use.");
  CHECK(refusal([&] { static_cast<void>(budget.reserve(std::numeric_limits<std::uint64_t>::max())); }).code() ==
        ErrorCode::invalid);
  CHECK(budget.used_bytes() == 30);
  CHECK(budget.reserve(70).bytes() == 70);
}

TEST_CASE("A reservation moves with its bytes", "[runtime][budget]") {
  const MemoryBudget budget(100);
  MemoryReservation a = budget.reserve(10);
  MemoryReservation b = budget.reserve(20);
  b = std::move(a);
  CHECK(budget.used_bytes() == 10);
  CHECK(b.bytes() == 10);
  MemoryReservation c = std::move(b);
  CHECK(budget.used_bytes() == 10);
  c = MemoryReservation();
  CHECK(budget.used_bytes() == 0);
}

TEST_CASE("Reservations outlive the handles of their budget", "[runtime][budget][R33]") {
  std::optional<MemoryBudget> budget(10);
  const MemoryBudget copy = *budget;
  CHECK(copy == *budget);
  CHECK(copy != MemoryBudget(10));
  std::optional<MemoryReservation> kept = budget->reserve(4);
  budget.reset();
  CHECK(copy.used_bytes() == 4);
  kept.reset();
  CHECK(copy.used_bytes() == 0);
}

TEST_CASE("Threads that share a budget never pass its ceiling", "[runtime][budget][R32]") {
  constexpr std::uint64_t kCeiling = 1000;
  constexpr int kRounds = 5000;
  const MemoryBudget budget(kCeiling);
  std::vector<std::thread> threads;
  std::vector<std::uint64_t> most(4, 0);
  for (std::size_t t = 0; t < most.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        try {
          const MemoryReservation taken = budget.reserve(1 + (static_cast<std::uint64_t>(round) * 37 + t) % 400);
          most[t] = std::max(most[t], budget.used_bytes());
        } catch (const Error&) {
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::uint64_t used : most) {
    CHECK(used > 0);
    CHECK(used <= kCeiling);
  }
  CHECK(budget.used_bytes() == 0);
}

TEST_CASE("An allocation that the budget refuses changes nothing and a smaller one is served",
          "[runtime][budget][R1][R33]") {
  for (const Placement placement : {Placement::device, Placement::shared}) {
    INFO(to_string(placement));
    const MemoryBudget budget(128 << 10);
    const Context context = open_context({.allocator = {}, .budget = budget});
    CHECK(budget.used_bytes() == 0);  // What all of a context's memory shares comes with the first that needs it.
    const Buffer first = context.allocate(80 << 10, {.label = "first", .placement = placement});
    REQUIRE(first.tensor(bytes_desc(1)).wait(in_a_minute()));
    const std::vector<std::uint64_t> before = state_of(context, budget);

    const Error busy =
        refusal([&] { static_cast<void>(context.allocate(80 << 10, {.label = "second", .placement = placement})); });
    CHECK(busy.code() == ErrorCode::busy);
    CHECK(contains(busy.sentence(), "81920 bytes do not fit in the memory budget now: "));
    CHECK(contains(busy.what(), "for the buffer \"second\""));
    CHECK(state_of(context, budget) == before);

    const Error invalid = refusal(
        [&] { static_cast<void>(context.allocate((128 << 10) + 1, {.label = "third", .placement = placement})); });
    CHECK(invalid.code() == ErrorCode::invalid);
    CHECK(state_of(context, budget) == before);

    const Buffer second = context.allocate(16 << 10, {.label = "second", .placement = placement});
    CHECK(budget.used_bytes() == before.front() + (16 << 10));
    CHECK(values(second) == std::vector<std::uint8_t>(16 << 10, 0));
  }
}

TEST_CASE("All handles to a buffer share one charge which ends with the last", "[runtime][budget][R1][R33]") {
  const MemoryBudget budget(1 << 20);
  const Context context = open_context({.allocator = {}, .budget = budget});
  std::optional<Buffer> buffer = context.allocate(1000, {.label = "b", .placement = Placement::shared});
  CHECK(budget.used_bytes() == 1000);
  std::optional<Buffer> slice = buffer->slice(10, 100);
  std::optional<DeviceTensor> tensor = slice->tensor(bytes_desc(10));
  std::optional<DeviceTensor> view = tensor->view(bytes_desc(2), 3);
  CHECK(budget.used_bytes() == 1000);
  buffer.reset();
  tensor.reset();
  slice.reset();
  CHECK(budget.used_bytes() == 1000);
  CHECK(context.memory().requested.live_bytes == 1000);
  view.reset();
  CHECK(context.memory().requested.live_bytes == 0);
  CHECK(budget.used_bytes() == 0);
}

TEST_CASE("An upload whose staging does not fit gives its destination back", "[runtime][budget][R33]") {
  const MemoryBudget budget(20 << 10);
  const Context context = open_context({.allocator = {}, .budget = budget});
  REQUIRE(context.tensor(bytes_desc(1)).wait(in_a_minute()));
  const std::vector<std::uint64_t> before = live(context);
  const std::uint64_t used = budget.used_bytes();
  // The destination fits and the staging, a power of two, does not.
  const Error error = refusal([&] { static_cast<void>(upload(context, fresh_bytes(9 << 10, 1), "x")); });
  CHECK(error.code() == ErrorCode::busy);
  CHECK(contains(error.what(), "uploading the tensor \"x\""));
  CHECK(contains(error.what(), "of pinned host memory for staging of copies"));
  CHECK(live(context) == before);
  CHECK(budget.used_bytes() == used);
  const std::vector<std::uint8_t> small = fresh_bytes(4 << 10, 2);
  CHECK(values(upload(context, small)) == small);
}

TEST_CASE("A download whose staging does not fit leaves its tensor as it is", "[runtime][budget][R29][R33]") {
  const MemoryBudget budget(16 << 10);
  const Context context = open_context({.allocator = {}, .budget = budget});
  const DeviceTensor tensor = context.tensor(bytes_desc(10 << 10), {.label = "t"});
  REQUIRE(tensor.wait(in_a_minute()));
  const std::vector<std::uint64_t> before = state_of(context, budget);
  const Error error = refusal([&] { static_cast<void>(tensor.download()); });
  CHECK(error.code() == ErrorCode::busy);
  CHECK(contains(error.what(), "for the buffer \"t readback\""));
  CHECK(state_of(context, budget) == before);
  CHECK(values(tensor.view(bytes_desc(1 << 10), 512)) == std::vector<std::uint8_t>(1 << 10, 0));
}

TEST_CASE("Contexts that share a budget share its ceiling", "[runtime][budget][R32]") {
  const MemoryBudget budget(64 << 10);
  const Context a = open_context({.allocator = {}, .budget = budget});
  const Context b = open_context({.allocator = {}, .budget = budget});
  std::optional<Buffer> held = a.allocate(60 << 10, {.label = "a", .placement = Placement::shared});
  const Error error =
      refusal([&] { static_cast<void>(b.allocate(60 << 10, {.label = "b", .placement = Placement::shared})); });
  CHECK(error.code() == ErrorCode::busy);
  held.reset();
  CHECK(b.allocate(60 << 10, {.label = "b", .placement = Placement::shared}).bytes() == 60 << 10);
}

TEST_CASE("Memory in flight keeps its charge until it has drained", "[runtime][budget][R33][T44][host-only]") {
  const MemoryBudget budget(1 << 20);
  HeldContext held({.allocator = {}, .budget = budget});
  for (const Placement placement : {Placement::device, Placement::shared}) {
    INFO(to_string(placement));
    const DeviceTensor source = upload(held.context, fresh_bytes(100, 1));
    REQUIRE(source.wait(in_a_minute()));
    CHECK(eventually([&] { return live(held.context).front() == 100; }));
    const std::uint64_t before = budget.used_bytes();
    held.device->hold();
    {
      const Buffer buffer = held.context.allocate(5000, {.label = "b", .placement = placement});
      static_cast<void>(source.copy_into(buffer.tensor(bytes_desc(100))));
    }
    CHECK(held.context.memory().requested.live_bytes == 5100);
    CHECK(budget.used_bytes() >= before + 5000);
    held.device->release();
    CHECK(eventually([&] { return live(held.context).front() == 100; }));
    CHECK(budget.used_bytes() < before + 5000);
  }
  CHECK(held.device->violations().empty());
}

TEST_CASE("A buffer that a graph has bound keeps its charge until the graph goes", "[runtime][budget][R33][T44]") {
  const MemoryBudget budget(1 << 20);
  const Context context = open_context({.allocator = {}, .budget = budget});
  std::optional<Graph> graph(std::in_place, context, "g");
  {
    const DeviceTensor bound = context.allocate(5000, {.label = "b"}).tensor(bytes_desc(5000));
    static_cast<void>(graph->bind(bound));
  }
  const std::uint64_t used = budget.used_bytes();
  CHECK(context.memory().requested.live_bytes == 5000);
  CHECK(used >= 5000);
  graph.reset();
  CHECK(eventually([&] { return live(context).front() == 0; }));
  CHECK(budget.used_bytes() + 5000 <= used);
}

}  // namespace weft::test
