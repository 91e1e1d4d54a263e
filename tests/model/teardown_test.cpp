#include "catch.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include <weft/weft.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kCount = 64;

/// Every handle to one model, each of which may go at any time.
struct Handles {
  explicit Handles(std::uint32_t slots) {
    TestSession test;
    const auto w = test.weight(std::vector<std::uint8_t>(kCount, 0x0f));
    const auto x = test.session.allocate<std::uint8_t>({kCount});
    const auto h = test.session.allocate<std::uint8_t>({kCount});
    const auto y = test.session.allocate<std::uint8_t>({kCount});
    context = test.context;
    definition = test.freeze();
    // The weight is read by the last command, so that it is in use for as long as the run.
    fragment = definition->fragment(trusted, {.inputs = {x},
                                              .outputs = {y},
                                              .commands = {test.xor_of(x, h, 0xff), test.xor_of(h, x, 0),
                                                           test.xor_of(w, h, 0), test.xor_of(x, y, 0)}});
    prepared = fragment->prepare({.slots = slots});
  }

  /// What drops each handle.
  [[nodiscard]] std::vector<std::function<void()>> drops() {
    std::vector<std::function<void()>> result{[this] { context.reset(); }, [this] { definition.reset(); },
                                              [this] { fragment.reset(); }, [this] { prepared.reset(); }};
    for (std::size_t i = 0; i < runs.size(); ++i) result.emplace_back([this, i] { runs[i].reset(); });
    return result;
  }

  std::optional<Context> context;
  std::optional<ModelDefinition> definition;
  std::optional<ModelFragment> fragment;
  std::optional<PreparedModel> prepared;
  std::vector<std::optional<Inference>> runs;
};

}  // namespace

TEST_CASE("Handles go in any order with runs in flight", "[model][S72][B16]") {
  const auto kept_open = open_device(test_device());  // Opening a GPU takes longer than a round.
  constexpr std::uint32_t kSeed = 5;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 60; ++round) {
    Handles handles(3);
    std::vector<std::vector<std::uint8_t>> inputs;
    for (std::uint32_t i = 0; i < 3; ++i) {
      inputs.push_back(fresh_bytes(kCount, random()));
      handles.runs.emplace_back(submit(*handles.prepared, inputs.back()));
    }
    std::vector<std::function<void()>> drops = handles.drops();
    // One run outlives all the rest and is read at the end.
    const std::size_t last = random() % 3;
    drops.erase(drops.begin() + 4 + static_cast<std::ptrdiff_t>(last));
    std::shuffle(drops.begin(), drops.end(), random);
    for (const auto& drop : drops) drop();
    CHECK(result(handles.runs[last].value()) == xored(inputs[last], 0xff));
  }
}

TEST_CASE("Nothing is freed under a held device whichever handle goes first", "[model][host-only][B16]") {
  constexpr std::uint32_t kSeed = 6;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 40; ++round) {
    const std::shared_ptr<HostDevice> device = make_host_device({.shuffled = round % 2 != 0, .seed = kSeed});
    const ScopedDevice scoped(Device::host(), device);
    {
      Handles handles(2);
      device->hold();
      for (std::uint32_t i = 0; i < 2; ++i)
        handles.runs.emplace_back(submit(*handles.prepared, fresh_bytes(kCount, i)));
      std::vector<std::function<void()>> drops = handles.drops();
      std::shuffle(drops.begin(), drops.end(), random);
      // The last handle waits for the device, which is stepped on from another thread.
      const std::function<void()> last = std::move(drops.back());
      drops.pop_back();
      for (const auto& drop : drops) {
        drop();
        static_cast<void>(device->step(random() % 3));
      }
      std::thread stepper([&] {
        std::this_thread::sleep_for(milliseconds(1));
        device->release();
      });
      last();
      stepper.join();
    }
    CHECK(device->violations().empty());
    device->drain();
    CHECK(device->objects() == HostObjects{});
  }
}

TEST_CASE("No destructor but that of the last context waits", "[model][host-only]") {
  const std::shared_ptr<HostDevice> device = make_host_device();
  const ScopedDevice scoped(Device::host(), device);
  std::optional<Handles> handles(std::in_place, 2);
  device->hold();
  for (std::uint32_t i = 0; i < 2; ++i) handles->runs.emplace_back(submit(*handles->prepared, fresh_bytes(kCount, i)));
  // All of it with the device held: whatever waits hangs the test.
  handles->runs.clear();
  handles->prepared.reset();
  handles->fragment.reset();
  handles->definition.reset();
  CHECK(handles->context->memory().requested.live_bytes == kCount);  // The weight, which a run still reads.
  CHECK(handles->context->memory().staging.live_bytes > 0);

  std::atomic<bool> gone{false};
  std::thread last([&] {
    handles.reset();
    gone = true;
  });
  std::this_thread::sleep_for(milliseconds(20));
  CHECK(!gone);
  device->release();
  last.join();
  CHECK(gone);
  CHECK(device->violations().empty());
  device->drain();
  CHECK(device->objects() == HostObjects{});
}

TEST_CASE("Memory of a dropped pool is charged until its runs have drained", "[model][host-only][R33][T44]") {
  const auto device = make_host_device();
  const ScopedDevice scoped(test_device(), device);
  const MemoryBudget budget(std::uint64_t{1} << 20);
  const Context context = Context::open(test_device(), {.budget = budget});
  XorModel model(TestSession(context), kCount, 0xff);
  std::optional<PreparedModel> prepared = model.fragment.prepare({.slots = 2});
  const std::uint64_t used = budget.used_bytes();
  const std::uint64_t reserved = context.memory().reserved.live_bytes;
  device->hold();
  std::optional<Inference> run = submit(*prepared, fresh_bytes(kCount, 1));
  std::optional<Inference> other = submit(*prepared, fresh_bytes(kCount, 2));
  run.reset();
  other.reset();
  prepared.reset();
  CHECK(budget.used_bytes() == used);
  CHECK(context.memory().reserved.live_bytes == reserved);
  device->release();
  CHECK(eventually([&] { return context.memory().reserved.live_bytes == 0; }));
  CHECK(budget.used_bytes() == 0);
}

TEST_CASE("A slot whose inference was dropped comes back after its last node alone", "[model][host-only][T14]") {
  const std::shared_ptr<HostDevice> device = make_host_device();
  const ScopedDevice scoped(Device::host(), device);
  const XorModel model(kCount);
  PreparedModel prepared = model.fragment.prepare();
  device->hold();
  { const Inference dropped = submit(prepared, fresh_bytes(kCount, 1)); }
  // Copy in, two dispatches, copy out with the completion.
  for (int node = 0; node < 3; ++node) {
    CHECK(device->step() == 1);
    CHECK(!prepared.try_acquire().has_value());
  }
  CHECK(device->step() == 1);
  CHECK(prepared.try_acquire().has_value());
  device->release();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 2);
  CHECK(infer(prepared, input) == xored(input, 0xff));
}

TEST_CASE("Memory of a dropped pool comes back behind its runs and the context goes on", "[model]") {
  const Context context = Context::open(test_device());
  const std::uint64_t before = context.memory().staging.live_bytes;
  for (int round = 0; round < 20; ++round) {
    PreparedModel prepared = XorModel(TestSession(context), kCount, 0xff).fragment.prepare({.slots = 2});
    static_cast<void>(submit(prepared, fresh_bytes(kCount, 1)));
    static_cast<void>(submit(prepared, fresh_bytes(kCount, 2)));
  }
  CHECK(eventually([&] { return context.memory().staging.live_bytes == before; }));
  CHECK(context.memory().requested.live_bytes == 0);
  CHECK(context.memory().reserved.live_bytes == 0);
}

TEST_CASE("A drained pool gives its memory and code back as it goes", "[model][host-only][B2]") {
  const std::shared_ptr<HostDevice> device = make_host_device();
  const ScopedDevice scoped(Device::host(), device);
  const Context context = Context::open(Device::host());
  const HostObjects before = device->objects();
  {
    PreparedModel prepared = XorModel(TestSession(context), kCount, 0xff).fragment.prepare();
    CHECK(infer(prepared, fresh_bytes(kCount, 1)) == xored(fresh_bytes(kCount, 1), 0xff));
    device->drain();
  }
  device->drain();                     // Frees are in the stream's order.
  CHECK(device->objects() == before);  // Nobody asked for memory() in between.
}

}  // namespace weft::test
