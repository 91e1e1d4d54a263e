#include "catch.h"
#include "plan/oracle.h"
#include <weft/plan/hazard.h>

#include <cstdint>
#include <vector>

using namespace weft;
using namespace weft::test;

namespace {

std::vector<std::uint32_t> before(const Predecessors& predecessors, std::size_t command) {
  return {predecessors[command].begin(), predecessors[command].end()};
}

using Positions = std::vector<std::uint32_t>;

}  // namespace

TEST_CASE("Two uses conflict if they share a byte that one writes", "[plan][R9]") {
  const ByteUse written{0, 8, 16, kWrite};
  CHECK(conflicts(written, {0, 15, 20, kRead}));
  CHECK(conflicts({0, 0, 9, kRead}, written));
  CHECK(conflicts(written, {0, 8, 16, kBoth}));
  CHECK(conflicts({0, 10, 12, kBoth}, {0, 11, 12, kBoth}));
  CHECK_FALSE(conflicts(written, {0, 16, 20, kWrite}));
  CHECK_FALSE(conflicts(written, {0, 0, 8, kWrite}));
  CHECK_FALSE(conflicts(written, {1, 8, 16, kWrite}));
  CHECK_FALSE(conflicts({0, 8, 16, kRead}, {0, 8, 16, kRead}));
}

TEST_CASE("An empty range conflicts with nothing", "[plan][R9]") {
  const ByteUse written{0, 8, 16, kWrite};
  CHECK_FALSE(conflicts(written, {0, 12, 12, kWrite}));
  CHECK_FALSE(conflicts({0, 12, 12, kWrite}, written));
  const std::vector<CommandUses> commands{uses({written}), uses({{0, 12, 12, kWrite}}), uses({{0, 8, 8, kRead}})};
  const Predecessors inferred = infer(commands);
  CHECK(before(inferred, 1).empty());
  CHECK(before(inferred, 2).empty());
}

TEST_CASE("Offsets beyond 32 bits keep ranges apart", "[plan][R9]") {
  const std::uint64_t far = std::uint64_t{1} << 32;
  const std::uint64_t top = ~std::uint64_t{0};
  CHECK_FALSE(conflicts({0, 0, 16, kWrite}, {0, far, far + 16, kWrite}));
  CHECK(conflicts({0, far + 8, far + 9, kWrite}, {0, far, far + 16, kWrite}));
  const std::vector<CommandUses> commands{uses({{0, 0, 16, kWrite}}), uses({{0, far, far + 16, kWrite}}),
                                          uses({{0, far + 15, far + 20, kRead}}), uses({{0, top - 1, top, kWrite}}),
                                          uses({{0, far + 16, top, kRead}})};
  const Predecessors inferred = infer(commands);
  CHECK(before(inferred, 1).empty());
  CHECK(before(inferred, 2) == Positions{1});
  CHECK(before(inferred, 3).empty());
  CHECK(before(inferred, 4) == Positions{3});
  CHECK(reasons(commands[1], commands[2], false) ==
        std::vector<Reason>{{HazardKind::read_after_write, 0, far + 15, far + 16}});
}

TEST_CASE("A read follows the last writer of each byte", "[plan][R9]") {
  const std::vector<CommandUses> commands{uses({{0, 0, 64, kWrite}}), uses({{0, 16, 32, kWrite}}),
                                          uses({{0, 24, 40, kRead}}), uses({{0, 16, 32, kRead}}),
                                          uses({{0, 32, 64, kRead}})};
  const Predecessors inferred = infer(commands);
  CHECK(before(inferred, 2) == Positions{0, 1});
  CHECK(before(inferred, 3) == Positions{1});
  CHECK(before(inferred, 4) == Positions{0});
}

TEST_CASE("A write follows the last writer and all readers since", "[plan][R9]") {
  const std::vector<CommandUses> commands{uses({{0, 0, 64, kRead}}), uses({{0, 0, 64, kWrite}}),
                                          uses({{0, 0, 8, kRead}}),  uses({{0, 4, 64, kRead}}),
                                          uses({{0, 0, 6, kWrite}}), uses({{0, 6, 64, kWrite}})};
  const Predecessors inferred = infer(commands);
  CHECK(before(inferred, 1) == Positions{0});
  CHECK(before(inferred, 4) == Positions{1, 2, 3});
  CHECK(before(inferred, 5) == Positions{1, 2, 3});
}

TEST_CASE("A command never follows itself and its uses may overlap", "[plan][R9]") {
  const CommandUses tangled = uses({{0, 0, 32, kWrite}, {0, 16, 48, kRead}, {0, 8, 24, kBoth}, {0, 0, 64, kRead}});
  const std::vector<CommandUses> commands{tangled, tangled, tangled};
  const Predecessors inferred = infer(commands);
  CHECK(before(inferred, 0).empty());
  CHECK(before(inferred, 1) == Positions{0});
  // Bytes 32..64 were read by both and written by none, so command 0 need not stand here for them.
  CHECK(before(inferred, 2) == Positions{1});
}

TEST_CASE("A stated order is followed once however often it is said", "[plan]") {
  std::vector<CommandUses> commands{uses({{0, 0, 8, kWrite}}), uses({{1, 0, 8, kWrite}}), uses({{0, 0, 8, kRead}})};
  commands[2].after = {1, 0, 1, 0};
  CHECK(before(infer(commands), 2) == Positions{0, 1});
}

TEST_CASE("A stated order must name an earlier command", "[plan]") {
  std::vector<CommandUses> commands(3);
  commands[1].after = {0};
  commands[2].after = {1, 2};
  const Error itself = refusal([&] { validate(commands); });
  CHECK(itself.code() == ErrorCode::invalid);
  CHECK(itself.sentence() == "commands[2] is stated to run after commands[2], which is not an earlier command.");
  commands[2].after.clear();
  commands[1].after = {7};
  const Error later = refusal([&] { static_cast<void>(infer(commands)); });
  CHECK(later.code() == ErrorCode::invalid);
  CHECK(later.sentence() == "commands[1] is stated to run after commands[7], which is not an earlier command.");
}

TEST_CASE("A range that ends before it begins is refused", "[plan]") {
  const std::vector<CommandUses> commands{uses({}), uses({{5, 9, 3, kRead}})};
  const Error error = refusal([&] { validate(commands); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "commands[1] uses bytes 9..3 of allocation 5, which end before they begin.");
}

TEST_CASE("The number that stands for no allocation is refused", "[plan]") {
  const Error error = refusal([] { validate(std::vector<CommandUses>{uses({{kNoAllocation, 0, 1, kRead}})}); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "commands[0] uses allocation 4294967295, beyond the limit of 4294967294.");
}

TEST_CASE("Allocation numbers may be far apart", "[plan][R9]") {
  const std::vector<CommandUses> commands{uses({{0xFFFFFFFE, 0, 8, kWrite}}), uses({{0x80000000, 0, 8, kWrite}}),
                                          uses({{0xFFFFFFFE, 4, 8, kRead}, {7, 0, 1, kWrite}}),
                                          uses({{0x80000000, 0, 1, kBoth}})};
  const Predecessors inferred = infer(commands);
  CHECK(before(inferred, 1).empty());
  CHECK(before(inferred, 2) == Positions{0});
  CHECK(before(inferred, 3) == Positions{1});
}

TEST_CASE("Reasons are merged into maximal ranges and sorted", "[plan]") {
  const CommandUses earlier =
      uses({{1, 0, 8, kWrite}, {1, 8, 16, kBoth}, {1, 24, 32, kWrite}, {0, 0, 100, kRead}, {1, 4, 12, kWrite}});
  const CommandUses later = uses({{1, 2, 30, kRead}, {0, 90, 110, kWrite}, {0, 10, 20, kWrite}, {1, 31, 40, kBoth}});
  const std::vector<Reason> expected{
      {HazardKind::read_after_write, 1, 2, 16},   {HazardKind::read_after_write, 1, 24, 30},
      {HazardKind::read_after_write, 1, 31, 32},  {HazardKind::write_after_read, 0, 10, 20},
      {HazardKind::write_after_read, 0, 90, 100}, {HazardKind::write_after_write, 1, 31, 32},
      {HazardKind::stated, kNoAllocation, 0, 0}};
  CHECK(reasons(earlier, later, true) == expected);
  CHECK(reasons(earlier, later, false).size() == expected.size() - 1);
  CHECK(reasons(uses({{0, 0, 8, kRead}}), uses({{0, 0, 8, kRead}}), false).empty());
}

TEST_CASE("Reasons equal those found byte by byte", "[plan][T23]") {
  constexpr std::uint64_t kBytes = 32;
  constexpr std::uint32_t kSeed = 20240917;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  std::size_t compared = 0;
  std::size_t with_reasons = 0;
  for (int program = 0; program < 200; ++program) {
    const std::vector<CommandUses> commands = random_program(random, kBytes);
    for (std::size_t later = 1; later < commands.size(); ++later) {
      const CommandUses& earlier = commands[later - 1];
      const bool stated = later % 3 == 0;
      const std::vector<Reason> found = reasons(earlier, commands[later], stated);
      ++compared;
      with_reasons += found.empty() ? 0U : 1U;
      INFO("program " << program << " command " << later);
      REQUIRE(found == byte_reasons(earlier, commands[later], stated, kBytes));
    }
  }
  INFO(with_reasons << " of " << compared << " pairs have reasons");
  CHECK(with_reasons > compared / 4);
  CHECK(with_reasons < compared);
}

TEST_CASE("Inference looks at a near-linear number of byte runs", "[plan][B9]") {
  const auto steps_per_command = [](std::uint32_t count, auto&& command) {
    std::vector<CommandUses> commands;
    for (std::uint32_t i = 0; i < count; ++i) commands.push_back(command(i));
    return static_cast<double>(infer(commands).steps) / count;
  };
  SECTION("Rewrites of one range") {
    const auto rewrite = [](std::uint32_t) { return uses({{0, 0, 4096, kBoth}}); };
    CHECK(steps_per_command(128, rewrite) <= 3);
    CHECK(steps_per_command(2048, rewrite) <= 3);
  }
  SECTION("Thousands of disjoint ranges of one allocation written and read again") {
    const auto disjoint = [](std::uint32_t i) {
      const std::uint64_t begin = std::uint64_t{i % 4096} * 512;
      return uses({{0, begin, begin + 512, i < 4096 ? kWrite : kBoth}});
    };
    CHECK(steps_per_command(16384, disjoint) <= 3);
  }
  SECTION("A range cut into pieces is whole again after one write") {
    const auto cut_and_join = [](std::uint32_t i) {
      if (i % 256 == 255) return uses({{0, 0, 256 * 16, kWrite}});
      const std::uint64_t begin = std::uint64_t{i % 256} * 16;
      return uses({{0, begin, begin + 16, i % 2 == 0 ? kRead : kWrite}});
    };
    CHECK(steps_per_command(16384, cut_and_join) <= 4);
  }
  SECTION("Many readers between writers") {
    const auto readers_writer = [](std::uint32_t i) { return uses({{0, 0, 64, i % 1024 == 0 ? kWrite : kRead}}); };
    CHECK(steps_per_command(16384, readers_writer) <= 3);
  }
}
