#include "catch.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/requests.h"
#include <weft/completion_source.h>
#include <weft/error.h>
#include <weft/plan_cache.h>
#include <weft/residency.h>
#include <weft/weft.h>

#include <algorithm>
#include <any>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

// All handles that weft has, dropped in any order.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 256;

/// One of each handle, in a row that is dropped in any order.
class Handles {
 public:
  /// With a gate the requests wait for the host; else they are in flight or done.
  explicit Handles(bool is_gated) {
    const MemoryBudget budget(std::uint64_t{1} << 30);
    const Context context = Context::open(test_device(), {.allocator = {}, .budget = budget});
    TestSession test(context);
    const XorModel model(std::move(test), kCount, 0xff);
    PreparedModel pool = model.fragment.prepare({.slots = 6, .forms = all_forms()});
    auto cache = std::make_shared<PlanCache>();
    auto residency = std::make_shared<Residency>(budget);
    auto cached = cache->get(model.fragment, {.slots = 2}, in_a_minute());
    auto unit = residency->load(
        "unit", [&] { return model.fragment.prepare({.slots = 1}); }, in_a_minute());
    auto gate = std::make_shared<CompletionSource>(context, "gate");

    const Buffer buffer = context.allocate(kCount, {.label = "b", .placement = Placement::shared});
    const DeviceTensor uploaded = upload(context, fresh_bytes(kCount, 1));
    auto run = std::make_shared<Inference>(start_one(pool, kHostDevice, is_gated ? gate.get() : nullptr));
    const DeviceTensor output = run->tensor(0);
    const DeviceTensor copy = output.copy_into(buffer.tensor(TensorDesc(DType::u8, {kCount})));
    auto readback = std::make_shared<Readback>(copy.download());
    auto downloaded = std::make_shared<Readback>(start_one(pool, kHostHost, nullptr).download());
    auto slot = std::make_shared<std::optional<ModelSlot>>(pool.try_acquire());
    auto chained = std::make_shared<Inference>(chain(pool, output));
    Graph graph(context, "over an output");
    // Binding waits for the values of a tensor, so for a gate as well.
    if (!is_gated) static_cast<void>(graph.bind(output));
    auto bound = std::make_shared<Graph>(std::move(graph));
    const Completion completion = chained->completion();
    completion.then([context, calls = calls_] { ++*calls; });
    if (*slot) start_waiting(pool);

    add(context, model.fragment, pool, cache, residency, *cached, unit, gate, buffer, uploaded, run, output, copy,
        readback, downloaded, slot, chained, bound, completion);
  }

  void drop_in(std::mt19937_64& random) {
    std::ranges::shuffle(handles_, random);
    while (!handles_.empty()) handles_.pop_back();
  }

 private:
  template <class... Handle>
  void add(const Handle&... handle) {
    (handles_.emplace_back(handle), ...);
  }

  static Inference start_one(PreparedModel& pool, RequestForm form, const CompletionSource* gate) {
    std::optional<ModelSlot> slot = pool.acquire(in_a_minute());
    if (!slot) throw Error(ErrorCode::internal, "A slot of the test is not free within a minute.");
    SubmitOptions options{.outputs = form.outputs};
    if (gate != nullptr) options.after.push_back(gate->completion());
    return std::move(*slot).submit(std::move(options));
  }
  static Inference chain(PreparedModel& pool, const DeviceTensor& input) {
    std::optional<ModelSlot> slot = pool.acquire(in_a_minute());
    if (!slot) throw Error(ErrorCode::internal, "A slot of the test is not free within a minute.");
    return std::move(*slot).submit({input}, {.outputs = Side::host});
  }
  static void start_waiting(PreparedModel pool) {
    pool.acquire_async(in_a_minute(), [](const std::optional<ModelSlot>&, const std::exception_ptr&) {});
  }

  std::vector<std::any> handles_;
  std::shared_ptr<std::atomic<int>> calls_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace

TEST_CASE("All handles go in two hundred random orders with half of them at work",
          "[serving][destruction][S72][B16][R20]") {
  const auto kept_open = open_device(test_device());
  for (std::uint64_t order = 0; order < 200; ++order) {
    INFO("order " << order);
    std::mt19937_64 random(order);
    Handles handles(order % 4 == 1);
    handles.drop_in(random);
  }
}

TEST_CASE("Handles that go in any order leave nothing on a host device", "[serving][destruction][S72][host-only]") {
  for (std::uint64_t order = 0; order < 60; ++order) {
    INFO("order " << order);
    std::mt19937_64 random(1000 + order);
    const auto device = std::make_shared<HostDevice>(HostOptions{.shuffled = true, .seed = order});
    {
      const ScopedDevice scoped(Device::host(), device);
      Handles handles(order % 3 == 1);
      handles.drop_in(random);
    }
    CHECK(eventually([&] {
      device->drain();
      return device->objects() == HostObjects{};
    }));
    CHECK(device->violations().empty());
  }
}

}  // namespace weft::test
