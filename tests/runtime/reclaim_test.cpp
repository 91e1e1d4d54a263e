#include "reclaim.h"

#include "catch.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/session_work.h"
#include <weft/error.h>
#include <weft/session.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCeiling = 1 << 20;
constexpr std::uint64_t kLarge = 900'000;

class CountedReclaimer final : public Reclaimer {
 public:
  void reap() noexcept override { ++reaps; }
  int reaps = 0;
};

/// Gives up its own last handle when it is asked, and comes back to the registry as it goes.
class LeavingReclaimer final : public Reclaimer {
 public:
  explicit LeavingReclaimer(std::weak_ptr<Reclaimer> next) : next_(std::move(next)) {}
  LeavingReclaimer(const LeavingReclaimer&) = delete;
  LeavingReclaimer& operator=(const LeavingReclaimer&) = delete;
  ~LeavingReclaimer() { add_reclaimer(next_); }

  void reap() noexcept override { self.reset(); }
  std::shared_ptr<LeavingReclaimer> self;

 private:
  std::weak_ptr<Reclaimer> next_;
};

bool fits(const Context& context, std::uint64_t bytes) {
  try {
    static_cast<void>(context.allocate(bytes, {.label = "b", .placement = Placement::shared}));
    return true;
  } catch (const Error& error) {
    CHECK(error.code() == ErrorCode::busy);
    return false;
  }
}

/// Makes a tensor of `bytes` and drops it. False when the budget is busy; called by threads, so nothing is checked
/// here.
bool holds_tensor(const Context& context, std::uint64_t bytes) {
  try {
    static_cast<void>(context.tensor(bytes_desc(bytes)));
    return true;
  } catch (const Error& error) {
    if (error.code() != ErrorCode::busy) throw;
    return false;
  }
}

}  // namespace

TEST_CASE("Only a shortage reclaims and a refusal comes after it", "[runtime][reclaim][R32]") {
  const auto counted = std::make_shared<CountedReclaimer>();
  add_reclaimer(counted);
  const MemoryBudget budget(kCeiling);
  const Context context = open_context({.allocator = {}, .budget = budget});
  const Buffer held = context.allocate(kLarge, {.label = "a", .placement = Placement::shared});
  CHECK(refusal([&] { static_cast<void>(context.allocate(kCeiling + 1)); }).code() == ErrorCode::invalid);
  CHECK(counted->reaps == 0);
  CHECK(!fits(context, kLarge));
  CHECK(counted->reaps == 1);
  CHECK(budget.used_bytes() == kLarge);
}

TEST_CASE("A reclaimer that is gone is not asked and may go while it is", "[runtime][reclaim]") {
  const auto next = std::make_shared<CountedReclaimer>();
  std::weak_ptr<LeavingReclaimer> watch;
  {
    const auto leaving = std::make_shared<LeavingReclaimer>(next);
    leaving->self = leaving;
    watch = leaving;
    add_reclaimer(leaving);
  }
  reclaim();
  CHECK(watch.expired());
  CHECK(next->reaps == 0);
  reclaim();
  CHECK(next->reaps == 1);
}

TEST_CASE("What drained in another context is reclaimed for a budget that is short",
          "[runtime][reclaim][R32][R33][host-only]") {
  for (const Placement placement : {Placement::device, Placement::shared}) {
    INFO(to_string(placement));
    const MemoryBudget budget(kCeiling);
    HeldContext held({.allocator = {}, .budget = budget});
    const Context other = Context::open(Device::host(), {.allocator = {}, .budget = budget});
    held.device->hold();
    {
      const DeviceTensor tensor = held.context.tensor(bytes_desc(kLarge), {.label = "a", .placement = placement});
      static_cast<void>(tensor.view(bytes_desc(8)).copy_into(tensor.view(bytes_desc(8), 256)));
    }
    CHECK(!fits(other, kLarge));
    held.device->drain();
    CHECK(budget.used_bytes() == kLarge);  // Nobody has looked.
    CHECK(fits(other, kLarge));
    CHECK(budget.used_bytes() == 0);
    CHECK(held.device->violations().empty());
  }
}

TEST_CASE("What a dropped session left is reclaimed for a budget that is short",
          "[runtime][reclaim][R32][R33][host-only]") {
  const MemoryBudget budget(kCeiling);
  HeldContext held({.allocator = {}, .budget = budget});
  held.device->hold();
  {
    ModelSession session(Device::host(), {.budget = budget});
    const Region region = session.allocate(400'000);
    upload(session, region, fresh_bytes(400'000, 1));
  }
  CHECK(!fits(held.context, kLarge));
  held.device->drain();
  CHECK(budget.used_bytes() > 400'000);  // With its staging.
  CHECK(fits(held.context, kLarge));
  CHECK(budget.used_bytes() == 0);
  CHECK(held.device->violations().empty());
}

TEST_CASE("A shortage ends with the work of others and nobody needs to look", "[runtime][reclaim][R32][R33]") {
  const MemoryBudget budget(kCeiling);
  const Context one = open_context({.allocator = {}, .budget = budget});
  const Context other = open_context({.allocator = {}, .budget = budget});
  for (std::uint64_t round = 0; round < 20; ++round) {
    INFO("round " << round);
    static_cast<void>(one.tensor(bytes_desc(kLarge)));
    CHECK(eventually([&] { return fits(other, kLarge); }));
    {
      ModelSession session(one.device(), {.budget = budget});
      const Region region = session.allocate(300'000);
      upload(session, region, fresh_bytes(300'000, round));
    }
    CHECK(eventually([&] { return fits(other, kLarge); }));
  }
}

TEST_CASE("Threads whose contexts share a short budget reclaim from one another",
          "[runtime][reclaim][R32][R33][thread]") {
  constexpr std::size_t kThreads = 4;
  constexpr int kRounds = 20;
  const MemoryBudget budget(kCeiling);
  std::vector<int> served(kThreads, 0);
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < kRounds; ++round) {
        // The last handle of each may go while another thread reclaims.
        const Context context = open_context({.allocator = {}, .budget = budget});
        for (int i = 0; i < 5; ++i) {
          // A try may find all of the ceiling in use by the others, however often. It succeeds once they let go.
          if (eventually([&] { return holds_tensor(context, 300'000); })) ++served[t];
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : served) CHECK(count == kRounds * 5);
  CHECK(eventually([&] { return budget.used_bytes() == 0; }));
}

TEST_CASE("What goes for a shortage of staging may upload itself", "[runtime][reclaim][R33][host-only]") {
  constexpr std::uint64_t kKiB = 1024;
  const MemoryBudget budget(64 * kKiB);
  HeldContext held({.allocator = {}, .budget = budget});
  std::optional<DeviceTensor> uploaded;
  const Allocator allocator{
      .allocate =
          [&](std::uint64_t bytes, void* stream) {
            DeviceAddress address = 0;
            static_cast<void>(held.device->allocate(static_cast<StreamHandle>(reinterpret_cast<std::uintptr_t>(stream)),
                                                    bytes, address));
            return reinterpret_cast<void*>(address);
          },
      .release =
          [&](void* address, std::uint64_t, void* stream) {
            static_cast<void>(held.device->free(static_cast<StreamHandle>(reinterpret_cast<std::uintptr_t>(stream)),
                                                reinterpret_cast<DeviceAddress>(address)));
            uploaded = upload(held.context, {1, 2, 3});
          }};
  const Context other = Context::open(Device::host(), {.allocator = allocator, .budget = budget});
  held.device->hold();
  static_cast<void>(other.tensor(bytes_desc(32 * kKiB)));
  held.device->drain();
  // The destination fits beside what is left of the tensor, its staging does not.
  const std::vector<std::uint8_t> source = fresh_bytes(20 * kKiB, 1);
  const DeviceTensor large = upload(held.context, source);
  REQUIRE(uploaded);
  CHECK(values(*uploaded) == std::vector<std::uint8_t>{1, 2, 3});
  CHECK(values(large.view(bytes_desc(64))) == std::vector<std::uint8_t>(source.begin(), source.begin() + 64));
  uploaded.reset();
}

}  // namespace weft::test
