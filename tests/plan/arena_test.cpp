#include "catch.h"
#include <weft/plan/arena.h>

#include <cstdint>
#include <limits>
#include <vector>

using namespace weft;
using namespace weft::test;

TEST_CASE("Allocations stand at multiples of 256 and do not overlap", "[plan]") {
  const std::vector<std::uint64_t> sizes{1, 256, 257, 96, 4096};
  const ArenaPlan plan = plan_arena(sizes);
  CHECK(plan.offsets == std::vector<std::uint64_t>{0, 256, 512, 1024, 1280});
  CHECK(plan.requested == 4706);
  CHECK(plan.reserved == 5376);
  CHECK(plan.padding() == 670);
}

TEST_CASE("An empty allocation takes no room", "[plan]") {
  CHECK(plan_arena(std::vector<std::uint64_t>{0, 8, 0, 0, 8}).offsets ==
        std::vector<std::uint64_t>{0, 0, 256, 256, 256});
  CHECK(plan_arena(std::vector<std::uint64_t>{0, 0}).reserved == 0);
  CHECK(plan_arena({}).offsets.empty());
}

TEST_CASE("Arena offsets pass 32 bits", "[plan]") {
  const std::uint64_t large = (std::uint64_t{5} << 30) + 3;
  const ArenaPlan plan = plan_arena(std::vector<std::uint64_t>{large, large});
  CHECK(plan.offsets[1] == (std::uint64_t{5} << 30) + 256);
  CHECK(plan.requested == 2 * large);
}

TEST_CASE("An arena beyond 64 bits is refused", "[plan]") {
  const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
  const Error sum = refusal([&] { static_cast<void>(plan_arena(std::vector<std::uint64_t>{512, most - 256})); });
  CHECK(sum.code() == ErrorCode::invalid);
  CHECK(sum.sentence() ==
        "Allocation 1 of 18446744073709551359 bytes ends the arena beyond the limit of 18446744073709551615 bytes: 512 "
        "bytes "
        "stand before it.");
  const Error padding = refusal([&] { static_cast<void>(plan_arena(std::vector<std::uint64_t>{most})); });
  CHECK(padding.code() == ErrorCode::invalid);
  CHECK(plan_arena(std::vector<std::uint64_t>{most - 255}).padding() == 0);
}
