#include "device_memory.h"

#include "catch.h"
#include "device/seam.h"
#include <weft/budget.h>
#include <weft/error.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

std::shared_ptr<AllocationDomain> make_domain(std::optional<MemoryBudget> budget) {
  return std::make_shared<AllocationDomain>(open_test_device(), Allocator{}, std::move(budget));
}

DeviceMemory allocate(const std::shared_ptr<AllocationDomain>& domain, std::uint64_t bytes) {
  return {domain, domain->stream(), bytes, "the test"};
}

}  // namespace

TEST_CASE("Device memory is charged before it is asked for and until it is given back", "[runtime][memory][R1][R33]") {
  const MemoryBudget budget(1000);
  const auto domain = make_domain(budget);
  {
    DeviceMemory memory = allocate(domain, 600);
    CHECK(budget.used_bytes() == 600);
    CHECK(domain->reserved.snapshot().live_bytes == 600);
    const DeviceMemory moved = std::move(memory);
    CHECK(moved.bytes() == 600);
    CHECK(budget.used_bytes() == 600);
    const Error error = refusal([&] { static_cast<void>(allocate(domain, 401)); });
    CHECK(error.code() == ErrorCode::busy);
    CHECK(error.contexts() == std::vector<std::string>{"allocating 401 bytes for the test"});
    CHECK(domain->reserved.snapshot().allocations == 1);
  }
  CHECK(budget.used_bytes() == 0);
  CHECK(domain->reserved.snapshot().live_bytes == 0);
  CHECK(allocate(domain, 1000).bytes() == 1000);
}

TEST_CASE("Memory that moves between domains of one budget is charged once", "[runtime][memory][S5][R33][T44]") {
  const MemoryBudget budget(1000);
  const auto from = make_domain(budget);
  const auto to = make_domain(budget);
  {
    DeviceMemory memory = allocate(from, 600);
    CHECK(memory.uncharged_bytes(*to) == 0);
    memory.count_in(to, {});
    CHECK(budget.used_bytes() == 600);
    CHECK(from->reserved.snapshot().live_bytes == 0);
    CHECK(to->reserved.snapshot().live_bytes == 600);
  }
  CHECK(budget.used_bytes() == 0);
  CHECK(to->reserved.snapshot().live_bytes == 0);
}

TEST_CASE("Memory that moves to another budget is charged there", "[runtime][memory][S5][R33]") {
  const MemoryBudget first(1000);
  const MemoryBudget second(500);
  const auto from = make_domain(first);
  const auto to = make_domain(second);
  const auto without = make_domain({});
  DeviceMemory memory = allocate(from, 400);
  REQUIRE(memory.uncharged_bytes(*to) == 400);
  memory.count_in(to, to->charge(400));
  CHECK(first.used_bytes() == 0);
  CHECK(second.used_bytes() == 400);
  memory.count_in(without, {});
  CHECK(second.used_bytes() == 0);
  memory.count_in(from, from->charge(memory.uncharged_bytes(*from)));
  CHECK(first.used_bytes() == 400);
}

}  // namespace weft::test
