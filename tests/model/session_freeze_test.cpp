#include "catch.h"
#include "device/device_decorator.h"
#include "device/faults.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include "support/session_work.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;
using Values = std::vector<std::uint8_t>;

/// Writes down which verbs are called.
class VerbLog final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;

  void clear() {
    const std::lock_guard lock(mutex_);
    verbs_.clear();
  }
  /// Calls `probe`, which calls no verb, before each call of `verb`.
  void on(Verb verb, std::function<void()> probe) {
    const std::lock_guard lock(mutex_);
    probed_ = verb;
    probe_ = std::move(probe);
  }
  [[nodiscard]] std::vector<Verb> verbs() const {
    const std::lock_guard lock(mutex_);
    return verbs_;
  }

 private:
  DeviceStatus before(Verb verb) noexcept override {
    const std::lock_guard lock(mutex_);
    verbs_.push_back(verb);
    if (probe_ && verb == probed_) probe_();
    return {};
  }

  mutable std::mutex mutex_;
  std::vector<Verb> verbs_;
  Verb probed_{};
  std::function<void()> probe_;
};

/// Positions of a verb in a log.
std::vector<std::ptrdiff_t> positions(const std::vector<Verb>& verbs, Verb verb) {
  std::vector<std::ptrdiff_t> found;
  for (auto at = verbs.begin(); (at = std::find(at, verbs.end(), verb)) != verbs.end(); ++at)
    found.push_back(at - verbs.begin());
  return found;
}

/// A session with a weight, scratch in use, a readback and two graphs, one of which is still queued.
struct BusySession {
  explicit BusySession(const Context& context, SessionOptions options = {})
      : session(context.device(), std::move(options)), slow_copy(session.load(test::slow_copy)) {
    w = session.weight(tensor_of(Values(4 * kCount, 1), "w"));
    x = session.allocate(4 * kCount, {.label = "x"});
    shared = session.allocate_shared(kCount, "shared");
    upload(session, x, Values(4 * kCount, 7));
    upload(session, shared, Values(kCount, 7));
    static_cast<void>(read(session, x));
    session.record("fill", {fill(shared, 1)});
    session.replay("fill");
    session.record("copy", {slow_copy(workload(kCount), x, w, kCount, std::uint64_t{5000000})});
    session.replay("copy");
  }

  ModelSession session;
  Kernel<In<std::uint32_t>, Out<std::uint32_t>, std::uint64_t, std::uint64_t> slow_copy;
  Region w;
  Region x;
  Region shared;
};

/// A device that the test's is not.
Device other_device() { return on_cuda() ? Device::host() : Device::host(7); }

}  // namespace

TEST_CASE("A freeze waits for queued work and keeps what it wrote into weights", "[model][S2][S8]") {
  const Context context = Context::open(test_device());
  BusySession busy(context);
  const KernelId copy = busy.session.load(xor_bytes_spec());
  const auto y = busy.session.allocate<std::uint8_t>({4 * kCount}, {.label = "y"});
  const ModelDefinition model = std::move(busy.session).freeze(context);
  const Region w = busy.w;
  PreparedModel prepared =
      model
          .fragment(trusted,
                    {.outputs = {y}, .commands = {dispatch(copy, workload(w.bytes), {w, y, w.bytes, std::uint8_t{0}})}})
          .prepare();
  CHECK(infer(prepared, {}) == Values(4 * kCount, 7));
}

TEST_CASE("A freeze whose wait fails ends in that error", "[model][S1][S2]") {
  const auto device = std::make_shared<FailingDevice>(open_device(test_device()), Verb::synchronize_stream, 0,
                                                      StatusCode::out_of_memory);
  const Context context = Context::open(test_device());
  const MemoryBudget budget(std::uint64_t{1} << 30);
  {
    const ScopedDevice scoped(test_device(), device);
    ModelSession session(test_device(), {.budget = budget});
    static_cast<void>(session.weight(tensor_of(Values(kCount, 1), "w")));
    const Error error = refusal([&] { static_cast<void>(std::move(session).freeze(context)); });
    CHECK(error.code() == ErrorCode::out_of_memory);
    CHECK(contains(error.sentence(), "The device cannot finish the session's work"));
    CHECK(refusal([&] { static_cast<void>(session.allocate(1)); }).sentence() ==
          "The session is moved from or frozen.");
  }
  CHECK(eventually([&] {
    const ModelSession next(test_device());
    return budget.used_bytes() == 0;
  }));
}

TEST_CASE("A failed session is not frozen", "[model][S1][S2]") {
  const auto device =
      std::make_shared<FailingDevice>(open_device(test_device()), Verb::launch, 0, StatusCode::out_of_memory);
  const ScopedDevice scoped(test_device(), device);
  TestSession test;
  const auto w = test.weight(Values(kCount, 1));
  test.session.record("fill", {fill(w, 2)});
  const Error cause = refusal([&] { test.session.replay("fill"); });
  CHECK(cause.code() == ErrorCode::out_of_memory);
  const Error error = refusal([&] { static_cast<void>(test.freeze()); });
  CHECK(error.code() == ErrorCode::failed);
  CHECK(error.sentence() == "The session failed earlier: " + cause.sentence());
  CHECK(refusal([&] { static_cast<void>(test.session.allocate(1)); }).sentence() ==
        "The session is moved from or frozen.");
  CHECK(test.context.memory().requested.live_bytes == 0);
}

TEST_CASE("A freeze into a context of another device is refused before anything is adopted", "[model][S1][S3]") {
  const Context home = Context::open(test_device());
  const MemoryBudget budget(std::uint64_t{1} << 30);
  const Context other = Context::open(other_device(), {.budget = budget});
  const std::uint64_t used = budget.used_bytes();
  BusySession busy(home);
  const Error error = refusal([&] { static_cast<void>(std::move(busy.session).freeze(other)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The session is of device " + to_string(test_device()) + " and the context of " +
                                to_string(other_device()) + ".");
  CHECK(refusal([&] { static_cast<void>(busy.session.allocate(1)); }).sentence() ==
        "The session is moved from or frozen.");
  CHECK(other.memory().requested.allocations == 0);
  CHECK(budget.used_bytes() == used);
}

TEST_CASE("A freeze destroys recorded graphs after its wait and before it adopts", "[model][S4]") {
  const auto log = std::make_shared<VerbLog>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), log);
  const auto check_order = [&](const std::vector<Verb>& verbs) {
    const auto waits = positions(verbs, Verb::synchronize_stream);
    const auto destroyed = positions(verbs, Verb::destroy_executable);
    REQUIRE(!waits.empty());
    REQUIRE(destroyed.size() == 2);
    CHECK(waits.front() < destroyed.front());
    return destroyed.back();
  };
  SECTION("that succeeds") {
    const Context context = Context::open(test_device());
    BusySession busy(context);
    log->clear();
    std::vector<std::uint64_t> adopted;
    log->on(Verb::destroy_executable, [&] { adopted.push_back(context.memory().requested.live_bytes); });
    const ModelDefinition model = std::move(busy.session).freeze(context);
    log->on(Verb::destroy_executable, {});
    CHECK(adopted == std::vector<std::uint64_t>(2, 0));
    static_cast<void>(check_order(log->verbs()));
  }
  SECTION("that the budget refuses") {
    // The refusal ends the adoption of the weight, which is freed on the way out.
    const Context context = Context::open(test_device(), {.budget = MemoryBudget(std::uint64_t{1} << 20)});
    BusySession busy(context);
    static_cast<void>(busy.session.weight(tensor_of(Values(std::uint64_t{1} << 21, 1), "large")));
    log->clear();
    const Error error = refusal([&] { static_cast<void>(std::move(busy.session).freeze(context)); });
    CHECK(error.code() == ErrorCode::invalid);
    const std::vector<Verb> verbs = log->verbs();
    const auto frees = positions(verbs, Verb::free);
    REQUIRE(!frees.empty());
    CHECK(check_order(verbs) < frees.front());
  }
}

TEST_CASE("A freeze adopts weights without a copy or another allocation", "[model][S5][S8]") {
  const auto device = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  const Context context = Context::open(test_device());
  BusySession busy(context);
  busy.session.synchronize();
  CHECK(context.memory().requested.live_bytes == 0);
  const std::vector<Verb> makers{Verb::allocate, Verb::allocate_pinned, Verb::copy,        Verb::fill, Verb::launch,
                                 Verb::load,     Verb::find_kernel,     Verb::create_graph};
  std::vector<std::uint64_t> before;
  for (const Verb verb : makers) before.push_back(device->count(verb));
  const ModelDefinition model = std::move(busy.session).freeze(context);
  for (std::size_t i = 0; i < makers.size(); ++i) {
    INFO(to_string(makers[i]));
    CHECK(device->count(makers[i]) == before[i]);
  }
  CHECK(model.weight_bytes() == 4 * kCount);
  CHECK(context.memory().requested.live_bytes == 4 * kCount);
  CHECK(context.memory().requested.allocations == 1);
  CHECK(context.memory().reserved.live_bytes == 4 * kCount);
}

TEST_CASE("A weight that the session charged to the context's budget is charged once", "[model][S5][R33][T44]") {
  const MemoryBudget budget(std::uint64_t{1} << 30);
  const Context context = Context::open(test_device(), {.budget = budget});
  const std::uint64_t used = budget.used_bytes();
  ModelSession session(test_device(), {.budget = budget});
  const TensorRegion w = session.weight(tensor_of(Values(5 * kCount, 1), "w"));
  CHECK(budget.used_bytes() >= used + w.bytes);
  std::optional<ModelDefinition> model = std::move(session).freeze(context);
  CHECK(budget.used_bytes() == used + w.bytes);
  std::optional<ModelFragment> fragment = model->fragment(trusted, {});
  model.reset();
  CHECK(budget.used_bytes() == used + w.bytes);
  fragment.reset();
  CHECK(budget.used_bytes() == used);
}

TEST_CASE("A freeze moves the charge of weights from the session's budget to the context's", "[model][S5][R33]") {
  const MemoryBudget of_context(std::uint64_t{1} << 30);
  const MemoryBudget of_session(std::uint64_t{1} << 30);
  const Context context = Context::open(test_device(), {.budget = of_context});
  const std::uint64_t used = of_context.used_bytes();
  std::vector<std::optional<MemoryBudget>> budgets{of_session, std::nullopt};
  for (const std::optional<MemoryBudget>& budget : budgets) {
    ModelSession session(test_device(), {.budget = budget});
    static_cast<void>(session.weight(tensor_of(Values(3, 1), "small")));
    static_cast<void>(session.weight(tensor_of(Values(5 * kCount, 1), "large")));
    CHECK(of_context.used_bytes() == used);
    {
      const ModelDefinition model = std::move(session).freeze(context);
      CHECK(of_context.used_bytes() == used + 3 + 5 * kCount);
      CHECK(of_session.used_bytes() == 0);
    }
    CHECK(of_context.used_bytes() == used);
  }
}

TEST_CASE("A freeze that the budget refuses keeps nothing and charges nothing", "[model][S1][S5][R33]") {
  constexpr std::uint64_t kRoom = 1024;
  const Context probe = Context::open(test_device(), {.budget = MemoryBudget(std::uint64_t{1} << 30)});
  std::uint64_t own = 0;
  {
    const MemoryBudget measured(std::uint64_t{1} << 30);
    const Context context = Context::open(test_device(), {.budget = measured});
    own = measured.used_bytes();
  }
  const MemoryBudget budget(own + kRoom);
  const Context context = Context::open(test_device(), {.budget = budget});
  const auto freeze = [&](std::uint64_t first, std::uint64_t second) {
    ModelSession session(test_device());
    static_cast<void>(session.weight(tensor_of(Values(first, 1), "first")));
    static_cast<void>(session.weight(tensor_of(Values(second, 1), "second")));
    return std::move(session).freeze(context);
  };
  const MemoryStatistics before = context.memory();
  {
    const MemoryReservation taken = budget.reserve(1);
    const Error error = refusal([&] { static_cast<void>(freeze(kRoom - 1, 1)); });
    CHECK(error.code() == ErrorCode::busy);
    CHECK(error.sentence() == std::to_string(kRoom) +
                                  " bytes do not fit in the memory budget now: " + std::to_string(own + 1) +
                                  " of its " + std::to_string(own + kRoom) + " bytes are in use.");
    CHECK(error.contexts() == std::vector<std::string>{"adopting 2 weights and 0 states of a session"});
  }
  // What can never fit is told apart from what does not fit now.
  CHECK(refusal([&] { static_cast<void>(freeze(own + kRoom, 1)); }).code() == ErrorCode::invalid);
  CHECK(budget.used_bytes() == own);
  CHECK(context.memory() == before);
  const ModelDefinition model = freeze(kRoom - 1, 1);
  CHECK(budget.used_bytes() == own + kRoom);
}

TEST_CASE("A freeze drops the memory of scratch and its contents and the staging", "[model][S6]") {
  const MemoryBudget budget(std::uint64_t{1} << 30);
  const Context context = Context::open(test_device());
  BusySession busy(context, {.budget = budget});
  CHECK(budget.used_bytes() > 4 * kCount + 4 * kCount + kCount);
  const auto y = busy.session.allocate<std::uint8_t>({4 * kCount}, {.label = "y"});
  const KernelId copy = busy.session.load(xor_bytes_spec());
  const ModelDefinition model = std::move(busy.session).freeze(context);
  CHECK(budget.used_bytes() == 0);
  CHECK(context.memory().reserved.live_bytes == 4 * kCount);
  CHECK(context.memory().staging.live_bytes == 0);
  // The session left sevens in it.
  PreparedModel prepared =
      model
          .fragment(trusted,
                    {.outputs = {y},
                     .commands = {dispatch(copy, workload(4 * kCount), {busy.x, y, 4 * kCount, std::uint8_t{0}})}})
          .prepare();
  CHECK(infer(prepared, {}) == Values(4 * kCount, 0));
}

TEST_CASE("A definition keeps the order of allocations and kernels that their session made", "[model][S7]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto w = test.weight(fresh_bytes(kCount, 1));
  const auto y = test.session.allocate_shared<std::uint8_t>({kCount}, "y");
  const auto v = test.weight(fresh_bytes(kCount, 2));
  const KernelId last = test.session.load(increment_spec());
  CHECK(std::vector{x.allocation, w.allocation, y.allocation, v.allocation} == std::vector<std::uint32_t>{0, 1, 2, 3});
  const ModelDefinition model = test.freeze();
  CHECK(model.weight_bytes() == 2 * kCount);
  CHECK(model.launch_config(test.xor_bytes.id(), std::vector<std::uint64_t>{1000}).grid == grid(4));
  CHECK(model.launch_config(last, {}).grid == grid(1));
  const auto check_xor = [&](const Region& weight, std::uint64_t seed) {
    PreparedModel prepared =
        model.fragment(trusted, {.outputs = {y}, .commands = {test.xor_of(weight, y, 0)}}).prepare();
    CHECK(infer(prepared, {}) == fresh_bytes(kCount, seed));
  };
  check_xor(w, 1);
  check_xor(v, 2);
}

}  // namespace weft::test
