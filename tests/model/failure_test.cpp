#include "catch.h"
#include "device/faults.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kCount = 64;

/// The live bytes of a context.
std::vector<std::uint64_t> live(const Context& context) {
  const MemoryStatistics memory = context.memory();
  return {memory.requested.live_bytes, memory.reserved.live_bytes, memory.staging.live_bytes};
}

/// How many calls of the device come before a model is prepared, and with it.
struct Calls {
  std::uint64_t before = 0;
  std::uint64_t after = 0;
};

Calls count_calls(const PrepareOptions& options) {
  const auto device = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  const XorModel model(kCount);
  const std::uint64_t before = device->total();
  const PreparedModel prepared = model.fragment.prepare(options);
  return {before, device->total()};
}

/// A model over a device that fails one call.
struct FailingModel {
  FailingModel(std::optional<Verb> verb, std::uint64_t call, StatusCode code)
      : device(std::make_shared<FailingDevice>(open_device(test_device()), verb, call, code)),
        scoped(test_device(), device),
        model(kCount) {}

  std::shared_ptr<FailingDevice> device;
  ScopedDevice scoped;
  XorModel model;
};

void check_serves(PreparedModel& prepared) {
  for (std::uint32_t i = 0; i < 2 * prepared.slots(); ++i) {
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, i);
    CHECK(infer(prepared, input) == xored(input, 0xff));
  }
}

/// Says that it launches and does not.
class ForgetfulDevice final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  DeviceStatus launch(ExecutableHandle, StreamHandle) noexcept override { return {}; }
};

/// A host device that a test holds, in place of the suite's.
struct HeldHost {
  std::shared_ptr<HostDevice> device = make_host_device();
  ScopedDevice scoped{Device::host(), device};
};

}  // namespace

TEST_CASE("A prepare that fails at any call leaves nothing and can be made again", "[model][S49][S63]") {
  const std::shared_ptr<DeviceApi> kept_open = open_device(test_device());
  for (const PrepareOptions& options :
       {PrepareOptions{.slots = 2},
        PrepareOptions{.slots = 2, .copies = CopyMethod::engine, .separate_allocations = true}}) {
    const Calls calls = count_calls(options);
    REQUIRE(calls.after > calls.before + 10);
    for (std::uint64_t call = calls.before; call < calls.after; ++call) {
      INFO("call " << call - calls.before << " of " << calls.after - calls.before);
      FailingModel failing({}, call, StatusCode::out_of_memory);
      const Context context = failing.model.fragment.context();
      const std::vector<std::uint64_t> before = live(context);
      const Error error = refusal([&] { static_cast<void>(failing.model.fragment.prepare(options)); });
      CHECK(failing.device->has_failed());
      CHECK(error.code() == ErrorCode::out_of_memory);
      CHECK(contains(error.sentence(), "it is out of memory (an injected failure)."));
      CHECK(eventually([&] { return live(context) == before; }));
      PreparedModel prepared = failing.model.fragment.prepare(options);
      check_serves(prepared);
    }
  }
}

TEST_CASE("A submit that fails leaves the slot usable", "[model]") {
  FailingModel failing(Verb::launch, 1, StatusCode::out_of_memory);
  PreparedModel prepared = failing.model.fragment.prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  CHECK(infer(prepared, input) == xored(input, 0xff));
  std::optional<ModelSlot> slot = prepared.try_acquire();
  const Error error = refusal([&] { static_cast<void>(std::move(slot.value()).submit()); });
  CHECK(error.code() == ErrorCode::out_of_memory);
  CHECK(contains(error.sentence(), "The device cannot launch the graph"));
  CHECK(!prepared.try_acquire().has_value());
  // The slot is still the caller's, with its input.
  {
    Inference again = std::move(*slot).submit();
    CHECK(result(again) == xored(input, 0xff));
  }
  check_serves(prepared);
}

TEST_CASE("A slot dropped after a failed submit is free at once", "[model]") {
  FailingModel failing(Verb::launch, 0, StatusCode::out_of_memory);
  PreparedModel prepared = failing.model.fragment.prepare();
  {
    std::optional<ModelSlot> slot = prepared.try_acquire();
    CHECK_THROWS_AS(static_cast<void>(std::move(slot.value()).submit()), Error);
  }
  CHECK(prepared.is_idle());
  check_serves(prepared);
}

TEST_CASE("A kernel without a host reference plans and validates and does not run", "[model][host-only]") {
  TestSession test;
  KernelSpec spec = increment_spec();
  spec.symbol = "nowhere";
  spec.host.reset();
  const auto n = test.session.allocate<std::uint32_t>({1});
  const KernelId kernel = test.session.load(spec);
  PreparedModel prepared =
      test.freeze()
          .fragment(trusted, {.outputs = {n}, .commands = {dispatch(kernel, grid(1), {n, std::uint32_t{1}})}})
          .prepare();
  const Error error = refusal([&] { static_cast<void>(std::move(prepared.try_acquire().value()).submit()); });
  CHECK(error.code() == ErrorCode::unsupported);
  CHECK(contains(error.sentence(), "a kernel has no host reference"));
  CHECK(prepared.is_idle());
}

TEST_CASE("A lost device wakes waiters and refuses later calls and hangs no destructor", "[model][host-only]") {
  const HeldHost host;
  const XorModel model(kCount);
  PreparedModel prepared = model.fragment.prepare({.slots = 3});
  std::optional<ModelSlot> unused = prepared.try_acquire();
  host.device->hold();
  Inference run = submit(prepared, fresh_bytes(kCount, 1));
  const Inference other = submit(prepared, fresh_bytes(kCount, 2));

  std::optional<Error> waited;
  std::optional<Error> acquired;
  std::thread waiter([&] { waited = refusal([&] { static_cast<void>(run.wait(in_a_minute())); }); });
  PreparedModel handle = prepared;
  std::thread acquirer([&] { acquired = refusal([&] { static_cast<void>(handle.acquire(in_a_minute())); }); });
  std::this_thread::sleep_for(milliseconds(5));
  host.device->lose();
  waiter.join();
  acquirer.join();
  CHECK(waited.value().code() == ErrorCode::device_lost);
  CHECK(acquired.value().code() == ErrorCode::device_lost);

  const auto check_lost = [](const auto& call) { CHECK(refusal(call).code() == ErrorCode::device_lost); };
  check_lost([&] { static_cast<void>(run.wait(past())); });
  check_lost([&] { static_cast<void>(std::move(*unused).submit()); });
  unused.reset();
  check_lost([&] { static_cast<void>(prepared.node_counts()); });
  check_lost([&] { static_cast<void>(model.fragment.prepare()); });
  check_lost([&] { static_cast<void>(ModelSession(Device::host())); });
  check_lost([&] { static_cast<void>(Context::open(Device::host())); });
}

TEST_CASE("A device lost at any call of a request is told as such", "[model]") {
  const auto serve = [](const XorModel& model) {
    PreparedModel prepared = model.fragment.prepare();
    static_cast<void>(infer(prepared, fresh_bytes(kCount, 1)));
  };
  for (const Verb verb : {Verb::allocate, Verb::instantiate, Verb::launch}) {
    INFO(to_string(verb));
    FailingModel failing(verb, 0, StatusCode::device_lost);
    CHECK(refusal([&] { serve(failing.model); }).code() == ErrorCode::device_lost);
    CHECK(refusal([&] { serve(failing.model); }).code() == ErrorCode::device_lost);
  }
}

TEST_CASE("A run that drains without completing is an internal error and no hang", "[model]") {
  const ScopedDevice scoped(test_device(), std::make_shared<ForgetfulDevice>(open_device(test_device())));
  const XorModel model(kCount);
  PreparedModel prepared = model.fragment.prepare({.spin = std::chrono::nanoseconds(0)});
  Inference run = submit(prepared, fresh_bytes(kCount, 1));
  const Error error = refusal([&] { static_cast<void>(run.wait(in_a_minute())); });
  CHECK(error.code() == ErrorCode::internal);
  CHECK(error.sentence() == "The stream drained, but its run 1 did not report completion.");
}

}  // namespace weft::test
