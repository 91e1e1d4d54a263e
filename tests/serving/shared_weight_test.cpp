#include "catch.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/model_fixture.h"
#include <weft/weft.h>

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

/// Takes all that a budget has left, in pieces, and fills it with 0xFF.
std::vector<Buffer> take_the_rest(const Context& context, const MemoryBudget& budget, std::uint64_t piece) {
  std::vector<Buffer> taken;
  while (budget.ceiling_bytes() - budget.used_bytes() >= piece + (1 << 20)) {
    taken.push_back(context.allocate(piece, {.label = "rest"}));
    const DeviceTensor source = upload(context, std::vector<std::uint8_t>(4096, 0xff));
    for (std::uint64_t at = 0; at < piece; at += 4096)
      static_cast<void>(source.copy_into(taken.back().slice(at, 4096).tensor(bytes_desc(4096))));
    REQUIRE(taken.back().tensor(bytes_desc(piece)).wait(in_a_minute()));
  }
  return taken;
}

constexpr std::uint64_t kScratch = 8 << 20;
constexpr std::uint64_t kUsed = 4096;

/// y = x ^ mask by way of the end of scratch that is filled first.
ModelFragment by_scratch(const Context& context, std::uint8_t mask) {
  TestSession test(context);
  const auto x = test.session.allocate<std::uint8_t>({kUsed}, {.label = "x"});
  const auto h = test.session.allocate<std::uint8_t>({kScratch}, {.label = "h"});
  const auto y = test.session.allocate<std::uint8_t>({kUsed}, {.label = "y"});
  const Region end = h.slice(kScratch - kUsed, kUsed);
  const Command in = test.xor_of(x, end, mask);
  const Command out = test.xor_of(end, y, 0);
  return test.freeze().fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {fill(h, 0xcc), in, out}});
}

}  // namespace

TEST_CASE("A plan keeps its scratch when another one goes", "[serving][case-2][B3]") {
  const MemoryBudget budget(std::uint64_t{64} << 20);
  const Context context = open_context({.allocator = {}, .budget = budget});
  PreparedModel plan = by_scratch(context, 0x0f).prepare();
  const std::uint64_t of_plan = plan.memory_bytes();
  CHECK(of_plan >= kScratch);
  std::optional<PreparedModel> other = by_scratch(context, 0xf0).prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kUsed, 1);
  REQUIRE(infer(plan, input) == xored(input, 0x0f));
  REQUIRE(infer(*other, input) == xored(input, 0xf0));
  other.reset();
  REQUIRE(eventually([&] {
    static_cast<void>(context.memory());
    return budget.used_bytes() == of_plan;
  }));
  const std::vector<Buffer> rest = take_the_rest(context, budget, 1 << 20);
  for (std::uint64_t round = 0; round < 100; ++round) CHECK(infer(plan, input) == xored(input, 0x0f));
  CHECK(plan.memory_bytes() == of_plan);
  for (const Buffer& taken : rest)
    CHECK(values(taken.slice(0, kUsed).tensor(bytes_desc(kUsed))) == std::vector<std::uint8_t>(kUsed, 0xff));
}

TEST_CASE("A weight lives as long as any plan that shares it", "[serving][case-4][R33][B3]") {
  constexpr std::uint64_t kWeight = 16 << 20;
  const MemoryBudget budget(std::uint64_t{64} << 20);
  const Context context = open_context({.allocator = {}, .budget = budget});
  const std::vector<std::uint8_t> values = fresh_bytes(kWeight, 7);
  Residency residency(budget);
  std::optional<PreparedModel> p;
  std::optional<PreparedModel> q;
  {
    // The weights are a unit of their own, from which both plans are made.
    std::optional<TypedRegion<std::uint8_t>> w;
    std::optional<TypedRegion<std::uint8_t>> y;
    std::optional<Kernel<In<std::uint8_t>, Out<std::uint8_t>, std::uint64_t, std::uint8_t>> kernel;
    auto weights = residency.load(
        "weights",
        [&] {
          ModelSession session(context.device(), {.budget = budget});
          kernel = session.load(test::xor_bytes);
          w = session.weight<std::uint8_t>({TensorDesc(DType::u8, {kWeight}), std::as_bytes(std::span(values)), "w"});
          y = session.allocate<std::uint8_t>({4096}, {.label = "y"});
          return std::move(session).freeze(context);
        },
        in_a_minute());
    const auto plan = [&](std::uint8_t mask) {
      return (*weights)
          ->fragment(
              trusted,
              {.outputs = {*y},
               .commands = {(*kernel)(workload(4096), w->slice(kWeight - 4096, 4096), *y, std::uint64_t{4096}, mask)}})
          .prepare();
    };
    p = plan(0);
    q = plan(0xff);
    // A release while the weights are in use is refused, and names them.
    const Error error = refusal([&] { static_cast<void>(residency.evict("weights")); });
    CHECK(error.code() == ErrorCode::busy);
    CHECK(error.sentence() == "The unit \"weights\" is in use.");
  }
  CHECK(residency.evict("weights"));  // Its handle goes; the memory is the plans'.
  const std::vector<std::uint8_t> tail(values.end() - 4096, values.end());
  CHECK(budget.used_bytes() >= kWeight);
  const std::vector<Buffer> rest = take_the_rest(context, budget, 1 << 20);
  CHECK(infer(*p, {}) == tail);
  CHECK(infer(*q, {}) == xored(tail, 0xff));
  p.reset();
  CHECK(infer(*q, {}) == xored(tail, 0xff));
  const std::uint64_t requested = context.memory().requested.live_bytes;
  q.reset();
  CHECK(eventually([&] { return context.memory().requested.live_bytes <= requested - kWeight; }));
}

}  // namespace weft::test
