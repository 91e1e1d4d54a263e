#include "allocation_domain.h"
#include "catch.h"
#include "device/faults.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "device_memory.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include "support/session_work.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;
using Values = std::vector<std::uint8_t>;

/// A session over a device that fails one call, made when all but that call stands.
struct FailingSession {
  explicit FailingSession(const std::shared_ptr<FailingDevice>& failing)
      : scoped(test_device(), failing), test(Context::open(test_device())) {
    w = test.weight(Values(kCount, 1));
    x = test.session.allocate(kCount, {.label = "x"});
    test.session.record("fill", {fill(x, 3)});
    upload(test.session, x, Values(kCount, 2));
    static_cast<void>(read(test.session, x));
  }

  ScopedDevice scoped;
  TestSession test;
  Region w;
  Region x;
};

/// Calls of `verb` by a FailingSession that nothing fails.
std::uint64_t calls_of(Verb verb) {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  const FailingSession session(
      std::make_shared<FailingDevice>(counting, verb, ~std::uint64_t{0}, StatusCode::internal));
  return counting->count(verb);
}

struct SessionCall {
  std::string name;
  std::function<void(FailingSession&)> run;
};

/// Every call of a session but the freeze.
std::vector<SessionCall> calls() {
  return {
      {"allocate", [](FailingSession& s) { static_cast<void>(s.test.session.allocate(1)); }},
      {"allocate_shared", [](FailingSession& s) { static_cast<void>(s.test.session.allocate_shared(1)); }},
      {"weight",
       [](FailingSession& s) { static_cast<void>(s.test.session.weight(tensor_of(Values(kCount, 1), "v"))); }},
      {"adopt",
       [](FailingSession& s) {
         static_cast<void>(s.test.session.weight(trusted, AdoptedMemory{}, TensorDesc(DType::u8, {1})));
       }},
      {"load", [](FailingSession& s) { static_cast<void>(s.test.session.load(increment_spec())); }},
      {"upload", [](FailingSession& s) { upload(s.test.session, s.x, Values(kCount, 1)); }},
      {"read", [](FailingSession& s) { static_cast<void>(read(s.test.session, s.x)); }},
      {"read_many",
       [](FailingSession& s) {
         static_cast<void>(s.test.session.read_many({s.x, s.w}));
       }},
      {"record", [](FailingSession& s) { s.test.session.record("other", {fill(s.test.session.allocate(kCount), 1)}); }},
      {"replay", [](FailingSession& s) { s.test.session.replay("fill"); }},
      {"synchronize", [](FailingSession& s) { s.test.session.synchronize(); }}};
}

void run_call(FailingSession& session, const std::string& name) {
  for (const SessionCall& call : calls()) {
    if (call.name == name) return call.run(session);
  }
  throw Error(ErrorCode::internal, "The test knows no call " + name + ".");
}

/// A life of a session in which every call is made.
std::uint64_t live(const SessionOptions& options) {
  const Context context = Context::open(test_device());
  ModelSession session(test_device(), options);
  const auto kernel = session.load(test::xor_bytes);
  const Region w = session.weight(tensor_of(Values(kCount, 1), "w"));
  const Region x = session.allocate(kCount, {.label = "x"});
  const Region y = session.allocate_shared(kCount, "y");
  upload(session, x, Values(kCount, 2));
  session.record("xor", {fill(y, 1), kernel(workload(kCount), x, w, kCount, std::uint8_t{1})});
  session.replay("xor");
  static_cast<void>(session.read_many({w, y}));
  session.synchronize();
  return std::move(session).freeze(context).weight_bytes();
}

}  // namespace

TEST_CASE("A session whose queued work failed refuses every later call with the cause", "[model][S2]") {
  struct Case {
    Verb verb;
    std::string call;
    std::string action;
  };
  for (const Case& failing :
       {Case{Verb::launch, "replay", "launch the graph"}, Case{Verb::copy, "upload", "copy to the device"},
        Case{Verb::copy, "weight", "copy to the device"}, Case{Verb::copy, "read", "copy from the device"},
        Case{Verb::copy, "read_many", "copy from the device"}, Case{Verb::fill, "record", "zero a session's memory"},
        Case{Verb::record_event, "upload", "copy to the device"},
        Case{Verb::synchronize_stream, "read", "finish the session's work"},
        Case{Verb::synchronize_stream, "synchronize", "finish the session's work"}}) {
    INFO(to_string(failing.verb) << " in " << failing.call);
    FailingSession session(std::make_shared<FailingDevice>(open_device(test_device()), failing.verb,
                                                           calls_of(failing.verb), StatusCode::out_of_memory));
    const Error cause = refusal([&] { run_call(session, failing.call); });
    CHECK(cause.code() == ErrorCode::out_of_memory);
    CHECK(contains(cause.sentence(), "The device cannot " + failing.action + ": "));
    for (const SessionCall& call : calls()) {
      INFO(call.name);
      const Error error = refusal([&] { call.run(session); });
      CHECK(error.code() == ErrorCode::failed);
      CHECK(error.sentence() == "The session failed earlier: " + cause.sentence());
    }
    CHECK(refusal([&] { static_cast<void>(session.test.freeze()); }).code() == ErrorCode::failed);
  }
}

TEST_CASE("A session that a call refused or that found no memory works on", "[model][S2]") {
  struct Case {
    Verb verb;
    std::string call;
  };
  for (const Case& failing :
       {Case{Verb::allocate, "weight"}, Case{Verb::allocate, "record"}, Case{Verb::create_graph, "record"},
        Case{Verb::add_node, "record"}, Case{Verb::instantiate, "record"}, Case{Verb::find_kernel, "load"}}) {
    INFO(to_string(failing.verb) << " in " << failing.call);
    FailingSession session(std::make_shared<FailingDevice>(open_device(test_device()), failing.verb,
                                                           calls_of(failing.verb), StatusCode::out_of_memory));
    CHECK(refusal([&] { run_call(session, failing.call); }).code() == ErrorCode::out_of_memory);
    CHECK(refusal([&] { session.test.session.replay("nothing"); }).code() == ErrorCode::invalid);
    run_call(session, failing.call);
    session.test.session.replay("fill");
    CHECK(read(session.test.session, session.x) == Values(kCount, 3));
    CHECK(session.test.freeze().weight_bytes() >= kCount);
  }
}

TEST_CASE("An upload or a read that finds no memory keeps none of it", "[model][R33]") {
  for (const Placement placement : {Placement::device, Placement::shared}) {
    const MemoryBudget budget(std::uint64_t{1} << 20);
    ModelSession session(test_device(), {.budget = budget});
    // Scratch fits, its staging or readback does not.
    const Region x = session.allocate((std::uint64_t{1} << 20) - 100, {.label = "x", .placement = placement});
    Values values(x.bytes, 1);
    for (int i = 0; i < 2; ++i) {
      CHECK(refusal([&] { upload(session, x, values); }).code() == ErrorCode::busy);
      CHECK(budget.used_bytes() == 0);
      CHECK(refusal([&] { static_cast<void>(read(session, x)); }).code() == ErrorCode::busy);
      CHECK(budget.used_bytes() == 0);
    }
    const Region small = session.allocate(kCount);
    upload(session, small, Values(kCount, 5));
    CHECK(read(session, small) == Values(kCount, 5));
  }
}

TEST_CASE("A session that fails at any call ends in an error or does no harm and leaves nothing", "[model][S1][S2]") {
  const std::shared_ptr<DeviceApi> kept_open = open_device(test_device());
  const auto counting = std::make_shared<CountingDevice>(kept_open);
  {
    const ScopedDevice scoped(test_device(), counting);
    REQUIRE(live({}) == kCount);
  }
  std::uint64_t failures = 0;
  for (std::uint64_t call = 0; call < counting->total(); ++call) {
    INFO("call " << call << " of " << counting->total());
    const MemoryBudget budget(std::uint64_t{1} << 30);
    const auto failing = std::make_shared<FailingDevice>(kept_open, std::nullopt, call, StatusCode::out_of_memory);
    const ScopedDevice scoped(test_device(), failing);
    try {
      const std::uint64_t bytes = live({.budget = budget});
      CHECK(bytes == kCount);
    } catch (const Error& error) {
      ++failures;
      CHECK(error.code() == ErrorCode::out_of_memory);
    }
    CHECK(eventually([&] {
      const ModelSession next(test_device());
      return budget.used_bytes() == 0;
    }));
    CHECK(live({}) == kCount);
    if (const auto* host = dynamic_cast<const HostDevice*>(kept_open.get()); host != nullptr)
      CHECK(host->violations().empty());
  }
  CHECK(failures > 20);
}

TEST_CASE("A session dropped with work queued frees nothing under the device", "[model][B16][R33][T44][host-only]") {
  const std::shared_ptr<HostDevice> device = make_host_device();
  const ScopedDevice scoped(Device::host(), device);
  const auto outside = std::make_shared<AllocationDomain>(device, Allocator{}, std::nullopt);
  const DeviceMemory foreign(outside, outside->stream(), kCount, "the test");
  const HostObjects before = device->objects();
  int released = 0;
  const MemoryBudget budget(std::uint64_t{1} << 30);
  const auto drop = [&](bool by_assignment) {
    ModelSession session(Device::host(), {.budget = budget});
    const auto kernel = session.load(test::xor_bytes);
    const Region x = session.allocate(kCount);
    const Region y = session.allocate_shared(kCount);
    static_cast<void>(session.weight(trusted, {reinterpret_cast<void*>(foreign.address()), [&] { ++released; }},
                                     TensorDesc(DType::u8, {kCount})));
    session.record("xor", {kernel(workload(kCount), x, y, kCount, std::uint8_t{1})});
    device->hold();
    upload(session, x, Values(kCount, 1));
    session.replay("xor");
    if (by_assignment) session = ModelSession(Device::host());
  };
  for (const bool by_assignment : {false, true}) {
    INFO((by_assignment ? "by assignment" : "by destruction"));
    released = 0;
    drop(by_assignment);
    const HostObjects left = device->objects();
    CHECK(left.pinned == before.pinned + 2);  // The shared scratch and the staging.
    CHECK(left.modules == before.modules + 1);
    CHECK(budget.used_bytes() > 0);
    CHECK(released == 0);
    device->release();
    CHECK(eventually([&] {
      { const ModelSession next(Device::host()); }
      return device->objects() == before;
    }));
    CHECK(released == 1);
    CHECK(budget.used_bytes() == 0);
    CHECK(device->violations().empty());
    CHECK(device->health().ok());
  }
}

}  // namespace weft::test
