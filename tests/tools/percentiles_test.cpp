#include "support/percentiles.h"

#include "catch.h"

#include <chrono>
#include <vector>

namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;
using weft::tools::Percentiles;
using weft::tools::percentiles;

}  // namespace

TEST_CASE("Percentiles are samples by nearest rank", "[tools]") {
  std::vector<nanoseconds> samples;
  for (int i = 100; i >= 1; --i) samples.push_back(microseconds(i));
  const Percentiles hundred = percentiles(samples);
  CHECK(hundred.p50 == 50);
  CHECK(hundred.p90 == 90);
  CHECK(hundred.p99 == 99);
  CHECK(hundred.max == 100);

  const Percentiles one = percentiles({nanoseconds(1500)});
  CHECK(one.p50 == 1.5);
  CHECK(one.max == 1.5);
  const Percentiles three = percentiles({microseconds(3), microseconds(1), microseconds(2)});
  CHECK(three.p50 == 2);
  CHECK(three.p99 == 3);
  CHECK(percentiles({}).max == 0);
}
