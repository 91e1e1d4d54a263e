#include "unit_store.h"

#include "catch.h"
#include "miss_log.h"
#include "support/call_count.h"
#include "support/deadlines.h"
#include <weft/plan_key.h>
#include <weft/unit.h>

#include <cstdint>
#include <memory>
#include <string>
#include <typeinfo>

namespace weft::test {
namespace {

UnitStore::Key key_of(const PlanKey& key) { return {key.content(), key.label()}; }

std::shared_ptr<detail::Unit> make_number() {
  auto loader = [] { return 1; };
  return std::make_shared<detail::UnitOf<int>>(loader, nullptr);
}

}  // namespace

TEST_CASE("A unit is evicted where there is no memory to note that it was", "[serving][residency][plan-cache][R34]") {
  int noted = 0;
  for (std::uint64_t failing = 1; failing <= 4; ++failing) {
    INFO("allocation " << failing << " fails");
    MissLog log(4);
    UnitStore store(4, [&](const std::string& content, UnitEnd end) { log.ended(content, end); });
    const PlanKey key = PlanKey().add("number", failing);
    log.miss(key, false);
    static_cast<void>(store.get(key_of(key), typeid(int), make_number, in_a_minute()));
    const std::uint64_t use = store.oldest_use(nullptr, 0);
    call_count.failing_new = failing;
    const bool is_evicted = store.evict_used_at(use);
    call_count.failing_new = 0;
    CHECK(is_evicted);
    CHECK(store.counters().units == 0);
    log.miss(key, false);
    const PlanMissCounters misses = log.counters();
    CHECK(misses.first + misses.evicted == 2);
    noted += misses.evicted == 1;
  }
  CHECK(noted >= 1);  // So that those which fail were all of them.
  CHECK(noted < 4);
}

}  // namespace weft::test
