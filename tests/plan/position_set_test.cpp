#include "plan/position_set.h"

#include "catch.h"

#include <cstddef>
#include <iterator>
#include <random>
#include <set>

using namespace weft;

TEST_CASE("A position set finds its neighbours as an ordered set does", "[plan]") {
  constexpr std::uint32_t kSeed = 64;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  for (const std::size_t size : {1U, 64U, 65U, 4096U, 4097U, 300000U}) {
    PositionSet positions(size);
    std::set<std::size_t> expected{0};
    positions.insert(0);
    for (int step = 0; step < 3000; ++step) {
      const std::size_t at = random() % size;
      if (random() % 2 == 0) {
        positions.insert(at);
        expected.insert(at);
      } else if (at != 0) {
        positions.erase(at);
        expected.erase(at);
      }
      const std::size_t asked = random() % size;
      const auto after = expected.upper_bound(asked);
      INFO("size " << size << " step " << step << " position " << asked);
      REQUIRE(positions.contains(asked) == expected.contains(asked));
      REQUIRE(positions.at_or_before(asked) == *std::prev(after));
      REQUIRE(positions.after(asked) == (after == expected.end() ? size : *after));
    }
  }
}
