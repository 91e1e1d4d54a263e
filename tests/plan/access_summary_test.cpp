#include "plan/access_summary.h"

#include "catch.h"

#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

using namespace weft;

namespace {

using Range = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>;

std::vector<Range> list(std::span<const ByteRange> ranges) {
  std::vector<Range> result;
  for (const ByteRange& range : ranges) result.emplace_back(range.allocation, range.begin, range.end);
  return result;
}

}  // namespace

TEST_CASE("A summary is disjoint and sorted by allocation and offset", "[plan][R10]") {
  const std::vector<CommandUses> commands{{{{2, 8, 16, Access::read},
                                            {1, 40, 50, Access::read_write},
                                            {1, 0, 10, Access::read},
                                            {1, 10, 20, Access::read},
                                            {1, 5, 12, Access::read},
                                            {1, 30, 30, Access::read},
                                            {2, 16, 20, Access::write}},
                                           {}}};
  const AccessSummary summary(commands);
  REQUIRE(summary.size() == 1);
  CHECK(list(summary.reads(0)) == std::vector<Range>{{1, 0, 20}, {1, 40, 50}, {2, 8, 16}});
  CHECK(list(summary.writes(0)) == std::vector<Range>{{1, 40, 50}, {2, 16, 20}});
}

TEST_CASE("The summary of 2048 rewrites is one range", "[plan][R10][T23]") {
  CommandUses rewrites;
  rewrites.uses.assign(2048, {0, 0, 4096, Access::write});
  const AccessSummary summary(std::vector<CommandUses>{rewrites});
  CHECK(summary.reads(0).empty());
  CHECK(list(summary.writes(0)) == std::vector<Range>{{0, 0, 4096}});
}
