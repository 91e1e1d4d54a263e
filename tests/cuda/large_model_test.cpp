#include "catch.h"
#include "support/model_fixture.h"
#include <weft/weft.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

// Sizes beyond 4 GiB and offsets beyond 2^32, through the public API.

namespace weft::test {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t{1} << 30;

TEST_CASE("A fill of 5 GiB and 3 bytes is ordered and exact in a model", "[cuda][cuda-only][big][case7]") {
  constexpr std::uint64_t kFilled = 5 * kGiB + 3;
  constexpr std::uint64_t kBehind = 4096;
  constexpr std::uint64_t kProbe = 16;
  constexpr std::uint8_t kOld = 0x11;
  constexpr std::uint8_t kValue = 0xa5;
  TestSession test;
  const Region memory = test.session.allocate(1 + kFilled + kBehind, {.label = "memory"});
  const auto before = test.session.allocate<std::uint8_t>({3 * kProbe}, {.label = "before"});
  const auto after = test.session.allocate<std::uint8_t>({3 * kProbe}, {.label = "after"});
  const Region range = memory.slice(1, kFilled);
  std::vector<Command> commands{fill(memory, kOld)};
  // Each reader binds up to the end of the range, and reads a few bytes at its start.
  const auto read_into = [&](const Region& target) {
    const std::uint64_t places[] = {0, kFilled / 2, kFilled - kProbe};
    for (std::uint64_t i = 0; i < 3; ++i) {
      commands.push_back(test.xor_bytes(grid(1), range.slice(places[i], kFilled - places[i]),
                                        target.slice(i * kProbe, kProbe), kProbe, std::uint8_t{0}));
    }
  };
  read_into(before);
  commands.push_back(fill(range, kValue));
  read_into(after);
  const TensorRegion start(memory.slice(0, 2), TensorDesc(DType::u8, {2}));
  const TensorRegion end(memory.slice(kFilled, 1 + kBehind), TensorDesc(DType::u8, {1 + kBehind}));
  PreparedModel prepared =
      test.freeze()
          .fragment(trusted, {.outputs = {before, after, start, end}, .commands = std::move(commands)})
          .prepare();
  for (int round = 0; round < 3; ++round) {
    Inference run = submit(prepared, {});
    REQUIRE(run.wait(in_a_minute()));
    const auto holds = [&](std::size_t output, const std::vector<std::uint8_t>& bytes) {
      return std::ranges::equal(run.output<std::uint8_t>(output), bytes);
    };
    CHECK(holds(0, std::vector<std::uint8_t>(3 * kProbe, kOld)));
    CHECK(holds(1, std::vector<std::uint8_t>(3 * kProbe, kValue)));
    CHECK(holds(2, {kOld, kValue}));
    std::vector<std::uint8_t> expected(1 + kBehind, kOld);
    expected[0] = kValue;
    CHECK(holds(3, expected));
  }
}

TEST_CASE("A dispatch over more than 4 GiB reaches its last byte", "[cuda][cuda-only][big]") {
  constexpr std::uint64_t kBytes = 4 * kGiB + 4099;
  constexpr std::uint64_t kTail = 64;
  TestSession test;
  const Region x = test.session.allocate(kBytes, {.label = "x"});
  const Region y = test.session.allocate(kBytes, {.label = "y"});
  // An input and an output far beyond 2^32 bytes into their allocations, at an odd byte.
  const TensorRegion in(x.slice(kBytes - kTail, kTail), TensorDesc(DType::u8, {kTail}));
  const TensorRegion out(y.slice(kBytes - kTail, kTail), TensorDesc(DType::u8, {kTail}));
  const TensorRegion around(y.slice(4 * kGiB - kTail, 2 * kTail), TensorDesc(DType::u8, {2 * kTail}));
  PreparedModel prepared =
      test.freeze()
          .fragment(trusted, {.inputs = {in},
                              .outputs = {out, around},
                              .commands = {fill(x.slice(0, kBytes - kTail), 0x21), test.xor_of(x, y, 0x0f)}})
          .prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kTail, 1);
  Inference run = submit(prepared, input);
  REQUIRE(run.wait(in_a_minute()));
  CHECK(std::ranges::equal(run.output<std::uint8_t>(0), xored(input, 0x0f)));
  CHECK(std::ranges::equal(run.output<std::uint8_t>(1), std::vector<std::uint8_t>(2 * kTail, 0x21 ^ 0x0f)));
}

TEST_CASE("Ranges that differ beyond 2^32 alone are told apart", "[cuda][cuda-only][big]") {
  // Offsets cut to 32 bits would make these two the same, and order the one behind the other.
  constexpr std::uint64_t kFar = 4 * kGiB;
  constexpr std::uint64_t kCount = 4096;
  TestSession test;
  const Region memory = test.session.allocate(kFar + kCount, {.label = "memory"});
  const TensorDesc desc(DType::u8, {kCount});
  const TensorRegion low(memory.slice(0, kCount), desc);
  const TensorRegion high(memory.slice(kFar, kCount), desc);
  PreparedModel prepared =
      test.freeze()
          .fragment(trusted,
                    {.outputs = {low, high}, .commands = {fill(low, 1).label("low"), fill(high, 2).label("high")}})
          .prepare();
  for (const TopologyEdge& edge : prepared.topology().edges) {
    const auto is_fill = [&](std::uint32_t node) { return prepared.topology().nodes[node].kind == NodeKind::fill; };
    CHECK(!(is_fill(edge.from) && is_fill(edge.to)));
  }
  Inference run = submit(prepared, {});
  REQUIRE(run.wait(in_a_minute()));
  CHECK(std::ranges::equal(run.output<std::uint8_t>(0), std::vector<std::uint8_t>(kCount, 1)));
  CHECK(std::ranges::equal(run.output<std::uint8_t>(1), std::vector<std::uint8_t>(kCount, 2)));
}

}  // namespace
}  // namespace weft::test
