#include "lane.h"

#include "catch.h"
#include "context_state.h"
#include "device/faults.h"
#include "device_tensor_access.h"
#include "runtime/memory_work.h"
#include "support/deadlines.h"
#include "support/device.h"
#include <weft/error.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace weft::test {
namespace {

/// A lane and the graph that completes its runs.
struct CountedLane {
  explicit CountedLane(const Context& home) : context(home), transfer(ContextAccess::state(home)->transfers().lane()) {}

  std::uint64_t run() const {
    return lane().run([&] {
      check(ContextAccess::state(context)->api().launch(transfer.complete.get(), transfer.stream()), "launch");
    });
  }
  [[nodiscard]] Lane& lane() const { return *transfer.lane; }

  Context context;
  const TransferLane& transfer;
};

/// Says that it launches and does not.
class ForgetfulDevice final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  DeviceStatus launch(ExecutableHandle, StreamHandle) noexcept override { return {}; }
};

}  // namespace

TEST_CASE("Runs of a lane are numbered and finish in order", "[runtime][lane][R15]") {
  const CountedLane counted(open_context());
  CHECK(counted.lane().launched() == 0);
  CHECK(counted.lane().has_drained());
  for (std::uint64_t run = 1; run <= 20; ++run) CHECK(counted.run() == run);
  CHECK(counted.lane().launched() == 20);
  CHECK(eventually([&] { return counted.lane().has_finished(20); }));
  for (std::uint64_t run = 1; run <= 20; ++run) CHECK(counted.lane().has_finished(run));
  CHECK(!counted.lane().has_finished(21));
  CHECK(counted.lane().has_drained());
  CHECK_NOTHROW(counted.lane().require_progress(20));
}

TEST_CASE("A run that was not put on the stream is not counted", "[runtime][lane]") {
  const CountedLane counted(open_context());
  CHECK_THROWS_AS(counted.lane().run([] { throw Error(ErrorCode::failed, "It fails."); }), Error);
  CHECK(counted.lane().launched() == 0);
  CHECK(counted.run() == 1);
  CHECK(eventually([&] { return counted.lane().has_finished(1); }));
}

TEST_CASE("A lane has not finished what is held", "[runtime][lane][R15][host-only]") {
  HeldContext held;
  const CountedLane counted(held.context);
  held.device->hold();
  CHECK(counted.run() == 1);
  CHECK(!counted.lane().has_finished(1));
  CHECK(!counted.lane().has_drained());
  counted.lane().require_progress(1);  // It is under way.
  held.device->release();
  CHECK(eventually([&] { return counted.lane().has_finished(1); }));
  CHECK(counted.lane().has_drained());
}

TEST_CASE("Work behind a lane runs after all that was queued on it", "[runtime][lane][host-only]") {
  HeldContext held;
  const CountedLane first(held.context);
  held.device->hold();
  static_cast<void>(first.run());
  const CountedLane second(held.context);
  REQUIRE(&first.lane() != &second.lane());
  check(first.lane().precede(second.lane().stream()), "order");
  static_cast<void>(second.run());
  static_cast<void>(first.run());  // Queued after the order was given: not waited for.
  held.device->release();
  CHECK(eventually([&] { return second.lane().has_finished(1); }));
  CHECK(first.lane().has_finished(1));
  held.device->drain();
}

TEST_CASE("A stream that drains without its run is an error", "[runtime][lane]") {
  const auto device = std::make_shared<ForgetfulDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  const CountedLane counted(open_context());
  CHECK(counted.run() == 1);
  check(ContextAccess::state(counted.context)->api().synchronize_stream(counted.transfer.stream()), "drain");
  const Error error = refusal([&] { counted.lane().require_progress(1); });
  CHECK(error.code() == ErrorCode::internal);
  CHECK(contains(error.sentence(), "drained, but its run 1 did not report completion."));
  CHECK(contains(error.what(), "While running copies"));
}

TEST_CASE("A run of a lane with a limit hangs past it and not before", "[runtime][lane][host-only]") {
  HeldContext held;
  const std::shared_ptr<DeviceApi>& api = ContextAccess::state(held.context)->domain()->api();
  const auto page =
      std::make_shared<const PinnedBuffer>(ContextAccess::state(held.context)->domain(), kWordBytes, "a word");
  Lane lane(api, page, page->host(), {.name = "x", .hang_after = std::chrono::milliseconds(20)});
  held.device->hold();
  const DeviceTensor tensor = held.context.tensor(bytes_desc(8));
  const FillNode fill{DeviceTensorAccess::memory(tensor)->address(), 8, 0};
  CHECK(lane.run([&] { check(api->fill(lane.stream(), fill), "fill"); }) == 1);
  CHECK(!lane.has_hung());
  std::string told;
  CHECK(eventually([&] {
    try {
      lane.require_progress(1);
    } catch (const Error& error) {
      told = error.what();
    }
    return !told.empty();
  }));
  CHECK(contains(told, "While running x: Run 1 has not finished for 0.0"));
  CHECK(lane.has_hung());
  held.device->release();
  held.device->drain();
}

}  // namespace weft::test
