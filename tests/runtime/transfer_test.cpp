#include "catch.h"
#include "context_state.h"
#include "device/device_decorator.h"
#include "device/faults.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/device.h"
#include <weft/error.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kBytes = 96;

std::vector<std::uint8_t> joined(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  std::vector<std::uint8_t> both = a;
  both.insert(both.end(), b.begin(), b.end());
  return both;
}

/// Uploads, copies, joins and downloads; checks the bytes.
void check_work(const Context& context) {
  const std::vector<std::uint8_t> a = fresh_bytes(kBytes, 1);
  const std::vector<std::uint8_t> b = fresh_bytes(kBytes, 2);
  const DeviceTensor first = upload(context, a);
  const DeviceTensor second = context.tensor(bytes_desc(kBytes));
  static_cast<void>(upload(context, b).copy_into(second));
  const Buffer shared = context.allocate(2 * kBytes, {.label = "s", .placement = Placement::shared});
  static_cast<void>(context.concatenate({first, second}).copy_into(shared.tensor(bytes_desc(2 * kBytes))));
  const std::vector<std::uint8_t> whole = values(first);
  const std::vector<std::uint8_t> both = values(shared);
  CHECK(whole == a);
  CHECK(both == joined(a, b));
}

/// Repeats the work until a call has failed: how many calls it takes depends on which lanes have drained. Returns
/// whether the failure was told.
bool work_until_failure(const Context& context, const FailingDevice& device) {
  while (!device.has_failed()) {
    try {
      check_work(context);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::out_of_memory);
      return true;
    }
  }
  return false;
}

/// Notes the streams that calls are made on.
class StreamLog final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  DeviceStatus copy(StreamHandle stream, const CopyNode& copy) noexcept override {
    (fresh ? written : copied).insert(stream);
    return DeviceDecorator::copy(stream, copy);
  }
  DeviceStatus fill(StreamHandle stream, const FillNode& fill) noexcept override {
    if (fresh) written.insert(stream);
    return DeviceDecorator::fill(stream, fill);
  }
  DeviceStatus wait_event(StreamHandle stream, EventHandle event) noexcept override {
    ordered.insert(stream);
    return DeviceDecorator::wait_event(stream, event);
  }

  bool fresh = false;              // Whether the calls are for fresh memory.
  std::set<StreamHandle> written;  // Fresh memory.
  std::set<StreamHandle> copied;   // Of transfers between memory in use.
  std::set<StreamHandle> ordered;  // That wait for others.
};

struct Calls {
  std::uint64_t before = 0;
  std::uint64_t after = 0;
};

Calls count_calls() {
  const auto device = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  const Context context = open_context();
  const std::uint64_t before = device->total();
  check_work(context);
  return {before, device->total()};
}

}  // namespace

TEST_CASE("Work that fails at any call ends in an error or does no harm and leaves nothing",
          "[runtime][transfer][B16][R33]") {
  const std::shared_ptr<DeviceApi> kept_open = open_device(test_device());
  const Calls calls = count_calls();
  REQUIRE(calls.after > calls.before + 20);
  std::uint64_t failures = 0;
  for (std::uint64_t call = calls.before; call < calls.after; ++call) {
    INFO("call " << call - calls.before << " of " << calls.after - calls.before);
    const auto device =
        std::make_shared<FailingDevice>(open_device(test_device()), std::nullopt, call, StatusCode::out_of_memory);
    const ScopedDevice scoped(test_device(), device);
    const MemoryBudget budget(1 << 20);
    const Context context = open_context({.allocator = {}, .budget = budget});
    if (work_until_failure(context, *device)) ++failures;
    CHECK(eventually([&] { return context.memory().requested.live_bytes == 0; }));
    check_work(context);
    CHECK(eventually([&] { return context.memory().requested.live_bytes == 0; }));
    // What stays is what uploads share: the two pieces of staging.
    CHECK(eventually([&] { return context.memory().reserved.live_bytes == 0; }));
    CHECK(eventually([&] { return budget.used_bytes() <= 2 * 4096; }));
  }
  CHECK(failures > 20);
}

TEST_CASE("No call of the host device fails under a fault without its rules kept",
          "[runtime][transfer][B16][host-only]") {
  const Calls calls = count_calls();
  for (std::uint64_t call = calls.before; call < calls.after; ++call) {
    INFO("call " << call - calls.before);
    const std::shared_ptr<HostDevice> host = make_host_device();
    {
      const auto failing = std::make_shared<FailingDevice>(host, std::nullopt, call, StatusCode::out_of_memory);
      const ScopedDevice scoped(Device::host(), failing);
      static_cast<void>(work_until_failure(Context::open(Device::host()), *failing));
    }
    host->drain();
    CHECK(host->violations().empty());
  }
}

TEST_CASE("Any number of tensors shares a few lanes", "[runtime][transfer][B1]") {
  const auto device = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  const Context context = open_context();
  CHECK(device->count(Verb::create_stream) == 1);
  CHECK(device->count(Verb::create_event) == 0);
  std::vector<DeviceTensor> tensors;
  for (std::uint64_t i = 0; i < 300; ++i) tensors.push_back(upload(context, fresh_bytes(64, i)));
  for (std::uint64_t i = 0; i < 300; ++i) CHECK(values(tensors[i]) == fresh_bytes(64, i));
  constexpr std::uint64_t kMostLanes = Transfers::kMaxLanes + 1;  // And the one for fresh memory.
  CHECK(device->count(Verb::create_stream) <= 1 + kMostLanes);
  CHECK(device->count(Verb::create_event) <= kMostLanes + 2);
  CHECK(device->count(Verb::instantiate) <= kMostLanes);
}

TEST_CASE("A transfer takes a lane that has drained and then the next in turn", "[runtime][transfer][host-only]") {
  HeldContext held;
  Transfers& transfers = ContextAccess::state(held.context)->transfers();
  const TransferLane& first = transfers.lane();
  for (int i = 0; i < 10; ++i) {
    REQUIRE(transfers.submit(first, SubmissionOrder{}, {}).wait(in_a_minute()));
    CHECK(&transfers.lane() == &first);
  }
  held.device->hold();
  std::vector<const TransferLane*> lanes;
  for (std::size_t i = 0; i < 2 * Transfers::kMaxLanes; ++i) {
    lanes.push_back(&transfers.lane());
    static_cast<void>(transfers.submit(*lanes.back(), SubmissionOrder{}, {}));
  }
  for (std::size_t i = 0; i < Transfers::kMaxLanes; ++i) {
    CHECK(std::ranges::count(lanes, lanes[i]) == 2);
    CHECK(lanes[i] == lanes[i + Transfers::kMaxLanes]);
  }
  held.device->release();
}

TEST_CASE("Uploads and new memory stand behind no other work", "[runtime][transfer][R37]") {
  const auto device = std::make_shared<StreamLog>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  const Context context = open_context();
  std::vector<DeviceTensor> tensors;
  for (std::uint64_t round = 0; round < 30; ++round) {
    device->fresh = true;
    const DeviceTensor first = upload(context, fresh_bytes(kBytes, round));
    const DeviceTensor second = context.tensor(bytes_desc(kBytes));
    device->fresh = false;
    tensors.push_back(first.copy_into(second));
    tensors.push_back(context.concatenate({second, first}));
    CHECK(values(tensors.back()) == joined(fresh_bytes(kBytes, round), fresh_bytes(kBytes, round)));
  }
  REQUIRE(device->written.size() == 1);
  const StreamHandle stream = *device->written.begin();
  CHECK(!device->copied.empty());
  CHECK(device->copied.count(stream) == 0);
  CHECK(device->ordered.count(stream) == 0);
}

TEST_CASE("What copies share is charged to no budget and counted nowhere", "[runtime][transfer][R32][R33]") {
  const MemoryBudget budget(8192);
  const Context context = open_context({.allocator = {}, .budget = budget});
  const DeviceTensor whole = context.tensor(bytes_desc(4096));  // All but room for one piece of staging.
  REQUIRE(whole.wait(in_a_minute()));
  CHECK(budget.used_bytes() == 4096);
  CHECK(values(whole.view(bytes_desc(16))) == std::vector<std::uint8_t>(16, 0));
  CHECK(eventually([&] { return context.memory().staging.live_bytes == 0; }));
  CHECK(budget.used_bytes() == 4096);
  const MemoryStatistics memory = context.memory();
  CHECK(memory.reserved == MemoryCounters{.live_bytes = 4096, .peak_bytes = 4096, .allocations = 1});
  CHECK(memory.staging == MemoryCounters{.live_bytes = 0, .peak_bytes = 16, .allocations = 1});
  const Error error = refusal([&] { static_cast<void>(context.tensor(bytes_desc(8000), {.label = "mine"})); });
  CHECK(error.code() == ErrorCode::busy);
  CHECK(contains(error.what(), "allocating 8000 bytes for the buffer \"mine\""));
}

TEST_CASE("Threads share a context's memory and lanes", "[runtime][transfer][thread]") {
  constexpr std::size_t kThreads = 4;
  constexpr std::uint64_t kRounds = 50;
  const Context context = open_context();
  const DeviceTensor board = context.tensor(bytes_desc(kThreads * 64));
  std::vector<std::thread> threads;
  std::vector<int> wrong(kThreads, 0);
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::uint64_t round = 0; round < kRounds; ++round) {
        const std::vector<std::uint8_t> source = fresh_bytes(64, t * kRounds + round);
        const DeviceTensor written = upload(context, source).copy_into(board, t * 64);
        if (values(written) != source) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == std::vector<int>(kThreads, 0));
  CHECK(eventually([&] { return context.memory().requested.live_bytes == kThreads * 64; }));
}

}  // namespace weft::test
