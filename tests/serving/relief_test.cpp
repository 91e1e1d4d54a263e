#include "catch.h"
#include "device/device_decorator.h"
#include "device/registry.h"
#include "reclaim.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include <weft/error.h>
#include <weft/residency.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace weft::test {
namespace {

/// Has no memory for one verb from a moment on until some is given back.
class FullDevice final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;

  void fill_up(Verb verb) {
    refused = 0;
    trims = 0;
    verb_ = verb;
    is_full_ = true;
  }
  std::atomic<int> refused{0};
  std::atomic<int> trims{0};

 private:
  DeviceStatus before(Verb verb) noexcept override {
    if (verb == Verb::free || verb == Verb::destroy_executable) is_full_ = false;
    if (verb == Verb::trim) ++trims;
    if (!is_full_ || verb != verb_) return {};
    ++refused;
    return {StatusCode::out_of_memory, 2, "a full device"};
  }

  std::atomic<Verb> verb_{Verb::allocate};
  std::atomic<bool> is_full_{false};
};

struct FullContext {
  std::shared_ptr<FullDevice> device = std::make_shared<FullDevice>(open_device(test_device()));
  ScopedDevice scoped{test_device(), device};
  Context context = Context::open(test_device());
};

}  // namespace

TEST_CASE("A device without memory gets that of idle units and is asked once more", "[serving][relief][R32]") {
  for (const Verb verb : {Verb::allocate, Verb::allocate_pinned, Verb::instantiate}) {
    INFO(to_string(verb));
    FullContext full;
    const XorModel model(TestSession(full.context), 64, 0xff);
    Residency residency(MemoryBudget(1 << 20));
    static_cast<void>(residency.load(
        "idle", [&] { return model.fragment.prepare(); }, in_a_minute()));
    full.device->fill_up(verb);
    PreparedModel prepared = model.fragment.prepare();
    CHECK(full.device->refused == 1);
    CHECK(full.device->trims == 1);
    CHECK(residency.statistics().units == 0);
    CHECK(infer(prepared, fresh_bytes(64, 1)) == xored(fresh_bytes(64, 1), 0xff));
  }
}

TEST_CASE("A device without memory and nothing idle is out of memory and nothing is lost", "[serving][relief][R32]") {
  for (const Verb verb : {Verb::allocate, Verb::allocate_pinned, Verb::instantiate}) {
    INFO(to_string(verb));
    FullContext full;
    const XorModel model(TestSession(full.context), 64, 0xff);
    Residency residency(MemoryBudget(1 << 20));
    auto used = residency.load(
        "used", [&] { return model.fragment.prepare(); }, in_a_minute());
    const std::vector<std::uint64_t> before = live(full.context);
    full.device->fill_up(verb);
    const Error error = refusal([&] { static_cast<void>(model.fragment.prepare()); });
    CHECK(error.code() == ErrorCode::out_of_memory);
    CHECK(full.device->refused == 2);
    CHECK(full.device->trims == 1);
    CHECK(eventually([&] { return live(full.context) == before; }));
    CHECK(infer(**used, fresh_bytes(64, 2)) == xored(fresh_bytes(64, 2), 0xff));
    used.reset();
    PreparedModel prepared = model.fragment.prepare();
    CHECK(infer(prepared, fresh_bytes(64, 3)) == xored(fresh_bytes(64, 3), 0xff));
  }
}

TEST_CASE("A buffer evicts idle models of a device without memory", "[serving][relief][R32]") {
  FullContext full;
  const XorModel model(TestSession(full.context), 64, 0xff);
  REQUIRE(full.context.tensor(bytes_desc(1)).wait(in_a_minute()));  // What all copies share is there.
  Residency residency(MemoryBudget(1 << 20));
  static_cast<void>(residency.load(
      "idle", [&] { return model.fragment.prepare(); }, in_a_minute()));
  full.device->fill_up(Verb::allocate);
  const Buffer buffer = full.context.allocate(1000, {.label = "b"});
  CHECK(full.device->refused == 1);
  CHECK(residency.statistics().evictions == 1);
  CHECK(values(buffer) == std::vector<std::uint8_t>(1000, 0));
}

}  // namespace weft::test
