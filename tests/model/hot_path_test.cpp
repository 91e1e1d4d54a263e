#include "catch.h"
#include "device/faults.h"
#include "device/registry.h"
#include "support/allocation_count.h"
#include "support/device.h"
#include "support/requests.h"
#include <weft/weft.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>
#include <vector>

// What a warm request costs beyond the driver.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;
/// Of Inference::tensor: the lease, how it is counted, and the shape of the descriptor.
constexpr std::uint64_t kTensorAllocations = 3;

/// Marks the calls of a request as the device's.
class MarkingDevice final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  DeviceStatus launch(ExecutableHandle executable, StreamHandle stream) noexcept override {
    allocation_count.in_device_call = true;
    const DeviceStatus status = DeviceDecorator::launch(executable, stream);
    allocation_count.in_device_call = false;
    return status;
  }
};

}  // namespace

TEST_CASE("The counting operator new counts", "[model]") {
  allocation_count = {};
  // Called as functions: the compiler may leave out a pair of new and delete.
  ::operator delete(::operator new(16));
  allocation_count.in_device_call = true;
  ::operator delete(::operator new(16, std::align_val_t(64)), std::align_val_t(64));
  ::operator delete(::operator new(16));
  allocation_count.in_device_call = false;
  const AllocationCount seen = allocation_count;
  CHECK(seen.outside == 1);
  CHECK(seen.inside == 2);
}

TEST_CASE("A warm request is one call of the device and allocates nothing beside it", "[model][T52]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), std::make_shared<MarkingDevice>(counting));
  XorModel model(kCount);
  // A wait that sleeps asks the device; this one spins for as long as it takes.
  PreparedModel prepared = model.fragment.prepare({.slots = 2, .spin = std::chrono::minutes(1)});
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  const std::vector<std::uint8_t> expected = xored(input, 0xff);
  static_cast<void>(infer(prepared, input));

  counting->reset();
  allocation_count = {};
  bool right = true;
  constexpr std::uint32_t kRequests = 200;
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    std::optional<ModelSlot> slot = prepared.acquire(in_a_minute());
    std::ranges::copy(input, slot->input(model.x).begin());
    Inference run = std::move(*slot).submit();
    right = run.wait(in_a_minute()) && right;
    right = std::ranges::equal(run.output(model.y), expected) && right;
  }
  const AllocationCount seen = allocation_count;
  CHECK(right);
  CHECK(counting->count(Verb::launch) == kRequests);
  CHECK(counting->total() == kRequests);
  CHECK(seen.outside == 0);
  INFO("inside the device's calls: " << seen.inside << " allocations in " << kRequests << " requests");
  if (on_cuda()) CHECK(seen.inside == 0);
}

TEST_CASE("A warm request of tensors is one call of the device and allocates for its lists alone", "[model][T52]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), std::make_shared<MarkingDevice>(counting));
  const XorModel model(kCount);
  PreparedModel prepared =
      model.fragment.prepare({.forms = {kDeviceHost, kDeviceDevice}, .spin = std::chrono::minutes(1)});
  const std::vector<DeviceTensor> inputs{ready(prepared.context(), fresh_bytes(kCount, 1))};
  const DeviceTensor output = ready(prepared.context(), fresh_bytes(kCount, 2));
  enum class Outputs { host, leased, into };
  const auto count = [&](Outputs outputs) {
    const auto serve = [&] {
      SubmitOptions options{.outputs = outputs == Outputs::host ? Side::host : Side::device};
      if (outputs == Outputs::into) options.into = {output};
      allocation_count = {};
      Inference run = prepared.acquire(in_a_minute()).value().submit(inputs, std::move(options));
      if (outputs == Outputs::leased) static_cast<void>(run.tensor(0));
      const bool is_done = run.wait(in_a_minute());
      const AllocationCount seen = allocation_count;
      REQUIRE(is_done);
      return seen.outside;
    };
    for (int i = 0; i < 3; ++i) static_cast<void>(serve());
    counting->reset();
    const std::uint64_t seen = serve();
    CHECK(counting->total() == 1);
    return seen;
  };
  CHECK(count(Outputs::host) == 0);
  CHECK(count(Outputs::leased) == kTensorAllocations);
  CHECK(count(Outputs::into) == 0);
}

TEST_CASE("A busy pool is asked for a slot without a call of the device and without allocating", "[model]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  PreparedModel prepared = XorModel(kCount).fragment.prepare();
  const ModelSlot slot = prepared.try_acquire().value();
  counting->reset();
  allocation_count = {};
  for (int i = 0; i < 100; ++i) {
    if (prepared.try_acquire().has_value()) FAIL("the pool handed its slot out twice");
  }
  const AllocationCount seen = allocation_count;
  CHECK(seen.outside == 0);
  CHECK(counting->total() == 0);
}

}  // namespace weft::test
