#include "staging.h"

#include "catch.h"
#include "device/faults.h"
#include "device/seam.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/device.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

namespace weft::test {
namespace {

std::shared_ptr<AllocationDomain> make_domain(const std::shared_ptr<DeviceApi>& api,
                                              std::optional<MemoryBudget> budget = {}) {
  return std::make_shared<AllocationDomain>(api, Allocator{}, std::move(budget));
}

void copy(StagedCopy& staged, Seam& seam, DeviceAddress destination, const std::vector<std::uint8_t>& source) {
  staged.copy(seam.stream(), destination, std::as_bytes(std::span(source)));
}

}  // namespace

TEST_CASE("Staged copies of any size arrive whole when their source goes at once", "[runtime][staging][R37]") {
  constexpr std::uint64_t kPiece = StagedCopy::kLargestPiece;
  Seam seam(open_test_device());
  const auto domain = make_domain(open_test_device());
  StagedCopy staged(domain);
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{4097}, kPiece, kPiece + 1, 3 * kPiece + 5}) {
    INFO(bytes << " bytes");
    const DeviceAddress memory = seam.memory(bytes);
    std::vector<std::uint8_t> source = fresh_bytes(bytes, bytes);
    const std::vector<std::uint8_t> expected = source;
    copy(staged, seam, memory, source);
    std::ranges::fill(source, std::uint8_t{0});
    CHECK(seam.values<std::uint8_t>(memory, bytes) == expected);
  }
}

TEST_CASE("Staging of growing copies settles at two bounded pieces", "[runtime][staging][B10]") {
  const auto device = std::make_shared<CountingDevice>(open_test_device());
  Seam seam(device);
  const auto domain = make_domain(device);
  {
    StagedCopy staged(domain);
    CHECK(domain->staging.snapshot().live_bytes == 0);
    const DeviceAddress memory = seam.memory(StagedCopy::kLargestPiece * 2);
    for (std::uint64_t bytes = 100; bytes <= StagedCopy::kLargestPiece * 2; bytes = bytes * 3 / 2)
      copy(staged, seam, memory, fresh_bytes(bytes, 1));
    const MemoryCounters settled = domain->staging.snapshot();
    CHECK(settled.live_bytes <= 2 * StagedCopy::kLargestPiece);
    CHECK(settled.peak_bytes <= 2 * StagedCopy::kLargestPiece);
    CHECK(settled.allocations <= 2 * 12);  // From 4 KiB to 8 MiB by powers of two.
    for (std::uint64_t bytes = 1; bytes <= StagedCopy::kLargestPiece; bytes *= 7)
      copy(staged, seam, memory, fresh_bytes(bytes, 1));
    CHECK(domain->staging.snapshot() == settled);
    CHECK(device->count(Verb::create_event) == 2);
  }
  CHECK(domain->staging.snapshot().live_bytes == 0);
}

TEST_CASE("Staging that the budget refuses is made by a later copy", "[runtime][staging][R33]") {
  const MemoryBudget budget(8192);
  Seam seam(open_test_device());
  StagedCopy staged(make_domain(open_test_device(), budget));
  const DeviceAddress memory = seam.memory(8192);
  std::optional<MemoryReservation> taken = budget.reserve(6000);
  CHECK(refusal([&] { copy(staged, seam, memory, fresh_bytes(10, 1)); }).code() == ErrorCode::busy);
  CHECK(budget.used_bytes() == 6000);
  taken.reset();
  copy(staged, seam, memory, fresh_bytes(10, 1));
  CHECK(budget.used_bytes() == 4096);
  CHECK(seam.values<std::uint8_t>(memory, 10) == fresh_bytes(10, 1));
}

TEST_CASE("A staged copy waits for its own piece alone", "[runtime][staging][host-only]") {
  const std::shared_ptr<HostDevice> device = make_host_device();
  Seam seam(device);
  std::optional<StagedCopy> staged(std::in_place, make_domain(device));
  const DeviceAddress memory = seam.memory(200);
  device->hold();
  copy(*staged, seam, memory, fresh_bytes(100, 1));
  copy(*staged, seam, memory + 100, fresh_bytes(100, 2));  // Returns while nothing has run.
  device->release();
  copy(*staged, seam, memory, fresh_bytes(100, 3));
  CHECK(seam.values<std::uint8_t>(memory, 100) == fresh_bytes(100, 3));
  CHECK(seam.values<std::uint8_t>(memory + 100, 100) == fresh_bytes(100, 2));
  staged.reset();
  CHECK(device->objects().pinned == 0);
  CHECK(device->violations().empty());
}

TEST_CASE("Staging ends once its copies are done", "[runtime][staging][B16][host-only]") {
  const std::shared_ptr<HostDevice> device = make_host_device();
  Seam seam(device);
  std::optional<StagedCopy> staged(std::in_place, make_domain(device));
  const DeviceAddress memory = seam.memory(100);
  device->hold();
  copy(*staged, seam, memory, fresh_bytes(100, 1));
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    device->release();
  });
  staged.reset();
  later.join();
  CHECK(device->violations().empty());
  CHECK(device->objects().pinned == 0);
  CHECK(seam.values<std::uint8_t>(memory, 100) == fresh_bytes(100, 1));
}

TEST_CASE("Pieces are not freed under a copy that failed halfway", "[runtime][staging][B16][host-only]") {
  const std::vector<std::uint8_t> source = fresh_bytes(StagedCopy::kLargestPiece + 100, 1);
  for (const Verb verb : {Verb::allocate_pinned, Verb::copy, Verb::create_event, Verb::record_event}) {
    INFO(to_string(verb));
    const std::shared_ptr<HostDevice> host = make_host_device();
    const auto failing = std::make_shared<FailingDevice>(host, verb, 1, StatusCode::out_of_memory);
    {
      Seam seam(failing);
      StagedCopy staged(make_domain(failing));
      const DeviceAddress memory = seam.memory(source.size());
      CHECK(refusal([&] { copy(staged, seam, memory, source); }).code() == ErrorCode::out_of_memory);
      copy(staged, seam, memory, source);
      CHECK(seam.values<std::uint8_t>(memory, source.size()) == source);
    }
    host->drain();
    CHECK(host->violations().empty());
    CHECK(host->objects().pinned == 0);
  }
}

}  // namespace weft::test
