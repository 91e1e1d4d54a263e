#include "catch.h"
#include "device/faults.h"
#include "device/registry.h"
#include "support/call_count.h"
#include "support/device.h"
#include "support/marking_device.h"
#include "support/pointer_telling_device.h"
#include "support/requests.h"
#include <weft/completion_source.h>
#include <weft/kernels.h>
#include <weft/plan_key.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Scalars that requests bring. Memory that they bring is tested in model/late_region_test.cpp.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 16;
constexpr std::uint64_t kNodes = 100;
constexpr std::uint64_t kAlphaNodes = 3;
constexpr std::uint64_t kBetaNodes = 7;
constexpr float kFixed = 3;

/// What a request brings to a slot.
using Bring = std::function<void(ModelSlot&)>;

/// A hundred nodes that each scale x: the first by a late alpha, those after them by a late beta, the rest by a fixed
/// factor.
struct ScaleModel {
  explicit ScaleModel(LateOptions<float> alpha_options = {.label = "alpha"}, std::uint64_t count = kNodes)
      : ScaleModel(TestSession(), std::move(alpha_options), count) {}
  ScaleModel(TestSession test, LateOptions<float> alpha_options, std::uint64_t count)
      : nodes(count),
        scale(test.session.load(kernels::scale)),
        x(test.session.allocate<float>({kCount}, {.label = "x"})),
        y(test.session.allocate<float>({nodes * kCount}, {.label = "y"})),
        alpha(test.session.late<float>(std::move(alpha_options))),
        beta(test.session.late<float>({.label = "beta", .value = 2.0f})),
        fragment(test.freeze().fragment(trusted,
                                        {.inputs = {x}, .outputs = {y}, .commands = commands(), .label = "scales"})) {}

  [[nodiscard]] std::vector<Command> commands() const {
    std::vector<Command> list;
    for (std::uint64_t i = 0; i < nodes; ++i) {
      const Region part = y.slice(i * kCount * sizeof(float), kCount * sizeof(float));
      if (i < kAlphaNodes) {
        list.push_back(scale(workload(kCount), x, part, alpha, kCount));
      } else if (i < kAlphaNodes + kBetaNodes) {
        list.push_back(scale(workload(kCount), x, part, beta, kCount));
      } else {
        list.push_back(scale(workload(kCount), x, part, kFixed, kCount));
      }
    }
    return list;
  }

  [[nodiscard]] std::vector<float> expected(const std::vector<float>& input, float a, float b) const {
    std::vector<float> values;
    for (std::uint64_t i = 0; i < nodes; ++i) {
      const float factor = i < kAlphaNodes ? a : i < kAlphaNodes + kBetaNodes ? b : kFixed;
      for (const float value : input) values.push_back(value * factor);
    }
    return values;
  }

  std::uint64_t nodes;
  Kernel<In<float>, Out<float>, float, std::uint64_t> scale;
  TypedRegion<float> x;
  TypedRegion<float> y;
  LateScalar<float> alpha;
  LateScalar<float> beta;
  ModelFragment fragment;
};

std::vector<float> small_numbers(float first) {
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), first);
  return values;
}

std::vector<float> finish(Inference run) {
  REQUIRE(run.wait(in_a_minute()));
  const std::span<const float> values = run.output<float>(0);
  return {values.begin(), values.end()};
}

Inference start(PreparedModel& prepared, const std::vector<float>& input, const Bring& bring,
                SubmitOptions options = {}) {
  ModelSlot slot = prepared.acquire(in_a_minute()).value();
  std::ranges::copy(input, slot.input<float>(0).begin());
  bring(slot);
  return std::move(slot).submit(std::move(options));
}

std::vector<float> request(PreparedModel& prepared, const std::vector<float>& input, const Bring& bring) {
  return finish(start(prepared, input, bring));
}

/// A device that counts, in place of the suite's.
struct CountedDevice {
  std::shared_ptr<CountingDevice> counting = std::make_shared<CountingDevice>(open_device(test_device()));
  ScopedDevice scoped{test_device(), counting};

  [[nodiscard]] std::uint64_t patches() const { return counting->count(Verb::set_executable_node); }
};

}  // namespace

TEST_CASE("Changing one late scalar among 100 nodes sets exactly its nodes and builds nothing", "[model][late]") {
  const CountedDevice device;
  const ScaleModel model;
  PreparedModel prepared = model.fragment.prepare({.slots = 1});
  const std::vector<float> input = small_numbers(1);
  const auto both = [&](float a, float b) {
    device.counting->reset();
    const std::vector<float> values = request(prepared, input, [&](ModelSlot& slot) {
      slot.set(model.alpha, a);
      slot.set(model.beta, b);
    });
    CHECK(values == model.expected(input, a, b));
    return device.patches();
  };
  CHECK(both(5, 2) == kAlphaNodes);  // beta stands in the executable as its own value.
  CHECK(both(5, 2) == 0);
  CHECK(both(7, 2) == kAlphaNodes);
  CHECK(both(7, 9) == kBetaNodes);
  CHECK(both(1, 4) == kAlphaNodes + kBetaNodes);
  CHECK(device.counting->count(Verb::instantiate) == 0);
  CHECK(device.counting->count(Verb::set_node) == 0);
  CHECK(device.counting->count(Verb::add_node) == 0);
  CHECK(device.counting->count(Verb::launch) == 1);
  CHECK(prepared.node_counts().kernel_nodes == kNodes);
}

TEST_CASE("A late scalar has its own value again in the slot's next request", "[model][late]") {
  const CountedDevice device;
  const ScaleModel model({.label = "alpha", .value = 4.0f});
  PreparedModel prepared = model.fragment.prepare({.slots = 1});
  const std::vector<float> input = small_numbers(2);
  CHECK(request(prepared, input, [](ModelSlot&) {}) == model.expected(input, 4, 2));
  CHECK(device.patches() == 0);
  CHECK(request(prepared, input, [&](ModelSlot& slot) { slot.set(model.alpha, 6.0f); }) == model.expected(input, 6, 2));
  CHECK(device.patches() == kAlphaNodes);
  {  // Set, and not submitted.
    ModelSlot slot = prepared.acquire(in_a_minute()).value();
    slot.set(model.alpha, 8.0f);
  }
  CHECK(request(prepared, input, [](ModelSlot&) {}) == model.expected(input, 4, 2));
  CHECK(device.patches() == 2 * kAlphaNodes);
}

TEST_CASE("A request that does not set a late scalar without a value is refused and can set it then", "[model][late]") {
  const ScaleModel model;
  PreparedModel prepared = model.fragment.prepare({.slots = 1});
  const std::vector<float> input = small_numbers(1);
  static_cast<void>(request(prepared, input, [&](ModelSlot& slot) { slot.set(model.alpha, 1.0f); }));
  ModelSlot slot = prepared.acquire(in_a_minute()).value();
  std::ranges::copy(input, slot.input(model.x).begin());
  const Error error = refusal([&] { static_cast<void>(std::move(slot).submit()); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The late scalar \"alpha\" is not set, and has no value of its own.");
  CHECK(prepared.statistics().runs.submitted == 1);
  slot.set(model.alpha, 2.0f);
  CHECK(finish(std::move(slot).submit()) == model.expected(input, 2, 2));
}

TEST_CASE("Each request form has late values of its own in its executable", "[model][late]") {
  const CountedDevice device;
  const ScaleModel model;
  PreparedModel prepared = model.fragment.prepare({.slots = 1, .forms = {kHostHost, kDeviceHost}});
  const std::vector<float> input = small_numbers(3);
  const DeviceTensor tensor =
      prepared.context().upload({TensorDesc(DType::f32, {kCount}), std::as_bytes(std::span(input)), "x"});
  const auto serve = [&](Side side, float a) {
    device.counting->reset();
    ModelSlot slot = prepared.acquire(in_a_minute()).value();
    slot.set(model.alpha, a);
    if (side == Side::host) std::ranges::copy(input, slot.input(model.x).begin());
    Inference run = side == Side::host ? std::move(slot).submit() : std::move(slot).submit({tensor});
    CHECK(finish(std::move(run)) == model.expected(input, a, 2));
    return device.patches();
  };
  CHECK(serve(Side::host, 5) == kAlphaNodes);
  CHECK(serve(Side::device, 5) == kAlphaNodes);
  CHECK(serve(Side::host, 5) == 0);
  CHECK(serve(Side::device, 6) == kAlphaNodes);
  CHECK(serve(Side::host, 5) == 0);
}

TEST_CASE("Every slot of a pool has late values of its own", "[model][late]") {
  const ScaleModel model({.label = "alpha"}, 12);
  PreparedModel prepared = model.fragment.prepare({.slots = 3});
  std::vector<Inference> runs;
  for (int i = 0; i < 3; ++i) {
    const auto number = static_cast<float>(i + 1);
    runs.push_back(
        start(prepared, small_numbers(number), [&](ModelSlot& slot) { slot.set(model.alpha, 10 * number); }));
  }
  for (int i = 0; i < 3; ++i) {
    const auto number = static_cast<float>(i + 1);
    const auto at = static_cast<std::size_t>(i);
    CHECK(finish(std::move(runs[at])) == model.expected(small_numbers(number), 10 * number, 2));
  }
}

TEST_CASE("A late scalar of another width or another session is refused where it is dispatched", "[model][late][S35]") {
  TestSession test;
  const auto scale = test.session.load(kernels::scale);
  const auto x = test.session.allocate<float>({kCount}, {.label = "x"});
  const auto y = test.session.allocate<float>({kCount}, {.label = "y"});
  const auto wide = test.session.late<double>({.label = "wide"});
  const auto count = test.session.late<std::uint64_t>({.label = "count"});
  TestSession other(test.context);
  const auto foreign = other.session.late<float>({.label = "foreign"});
  const LateScalar<float> beyond(LateScalarId{wide.session, 7});
  const auto factor = test.session.late<float>({.label = "factor"});
  const ModelDefinition definition = test.freeze();
  const auto refused = [&](std::vector<Argument> arguments) {
    const Error error = refusal([&] {
      static_cast<void>(definition.fragment(
          trusted, {.inputs = {x}, .outputs = {y}, .commands = {dispatch(scale, workload(kCount), arguments)}}));
    });
    CHECK(error.code() == ErrorCode::invalid);
    return std::string(error.sentence());
  };
  CHECK(refused({x, y, wide, kCount}) == "The argument 2 (\"factor\") has 8 bytes; the kernel was compiled for 4.");
  CHECK(refused({x, y, factor, factor}) == "The argument 3 (\"count\") has 4 bytes; the kernel was compiled for 8.");
  CHECK(refused({factor, y, factor, count}) == "The argument 0 (\"x\") is a scalar; the kernel takes a region there.");
  CHECK(contains(refused({x, y, foreign, kCount}), "The late scalar belongs to session"));
  CHECK(contains(refused({x, y, beyond, kCount}), "The late scalar has index 7; the definition has 3."));
  // A late scalar of the compiled width may stand for an index.
  CHECK_NOTHROW(definition.fragment(
      trusted, {.inputs = {x}, .outputs = {y}, .commands = {scale(workload(kCount), x, y, factor, count)}}));
}

TEST_CASE("A late scalar where the code takes a pointer is refused", "[model][late][S34]") {
  const ScopedDevice scoped(test_device(), std::make_shared<PointerTellingDevice>(open_device(test_device())));
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto d = test.session.allocate<std::int64_t>({1}, {.label = "d"});
  const auto salt = test.session.late<std::uint64_t>({.label = "salt", .value = 0});
  const auto kernel = test.digest;
  const ModelDefinition definition = test.freeze();
  const Error error = refusal([&] {
    static_cast<void>(definition.fragment(
        trusted, {.inputs = {x}, .outputs = {d}, .commands = {kernel(grid(1), x, d, kCount, salt)}}));
  });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.sentence(), "The argument 3 (\"salt\") is a late scalar; the compiled kernel takes a pointer"));
}

TEST_CASE("A value for a late scalar that the model's commands do not take is refused", "[model][late]") {
  const ScaleModel model({.label = "alpha"}, 12);
  PreparedModel prepared = model.fragment.prepare();
  ModelSlot slot = prepared.acquire(in_a_minute()).value();
  const LateScalar<float> foreign(LateScalarId{model.alpha.session + 1000, 0});
  CHECK(contains(refusal([&] { slot.set(foreign, 1.0f); }).sentence(), "is in no command of the model."));
  const LateScalar<double> wide(model.alpha);
  CHECK(refusal([&] { slot.set(wide, 1.0); }).sentence() == "The late scalar \"alpha\" has 4 bytes; 8 are given.");
  PreparedModel plain = XorModel(kCount).fragment.prepare();
  ModelSlot other = plain.acquire(in_a_minute()).value();
  CHECK(refusal([&] { other.set(model.alpha, 1.0f); }).sentence() == "No command of the model takes anything late.");
  const ModelSlot taken = std::move(slot);
  CHECK(refusal([&] { slot.set(model.alpha, 1.0f); }).sentence() == "The slot is moved from.");
}

TEST_CASE("A late scalar has no place in a session's own graphs", "[model][late]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint32_t>({1}, {.label = "x"});
  const auto amount = test.session.late<std::uint32_t>({.label = "amount", .value = 1});
  const Error error = refusal([&] { test.session.record("key", {test.increment(grid(1), x, amount)}); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.sentence(), "The scalar \"amount\" is one that each request brings"));
}

TEST_CASE("A gated request keeps its late values until it is launched", "[model][late]") {
  const ScaleModel model({.label = "alpha"}, 12);
  PreparedModel prepared = model.fragment.prepare({.slots = 1});
  const std::vector<float> input = small_numbers(1);
  const auto begin = [&](const CompletionSource& source, float a) {
    return start(prepared, input, [&](ModelSlot& slot) { slot.set(model.alpha, a); }, {.after = {source.completion()}});
  };
  {
    CompletionSource source(prepared.context(), "tokenizer");
    Inference run = begin(source, 5);
    CHECK(!prepared.try_acquire().has_value());
    CHECK(source.complete());
    CHECK(finish(std::move(run)) == model.expected(input, 5, 2));
  }
  {
    CompletionSource source(prepared.context(), "tokenizer");
    Inference run = begin(source, 6);
    CHECK(source.fail(std::make_exception_ptr(std::runtime_error("no words"))));
    CHECK(refusal([&] { static_cast<void>(run.wait(in_a_minute())); }).code() == ErrorCode::failed);
  }
  CHECK(request(prepared, input, [&](ModelSlot& slot) { slot.set(model.alpha, 5.0f); }) == model.expected(input, 5, 2));
}

TEST_CASE("A node that cannot be set leaves the slot to be submitted again with all its values", "[model][late]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const auto failing = std::make_shared<FailingDevice>(counting, Verb::set_executable_node, 1, StatusCode::invalid);
  const ScopedDevice scoped(test_device(), failing);
  const ScaleModel model;
  PreparedModel prepared = model.fragment.prepare({.slots = 1});
  const std::vector<float> input = small_numbers(1);
  ModelSlot slot = prepared.acquire(in_a_minute()).value();
  std::ranges::copy(input, slot.input(model.x).begin());
  slot.set(model.alpha, 5.0f);
  const Error error = refusal([&] { static_cast<void>(std::move(slot).submit()); });
  CHECK(failing->has_failed());
  CHECK(contains(error.what(), "setting the late arguments of node"));
  CHECK(counting->count(Verb::launch) == 0);
  CHECK(finish(std::move(slot).submit()) == model.expected(input, 5, 2));
  CHECK(counting->count(Verb::set_executable_node) == kAlphaNodes);
  CHECK(prepared.statistics().runs.submitted == 1);
}

TEST_CASE("One value reaches a fragment that is recorded twice", "[model][late]") {
  const CountedDevice device;
  const ScaleModel model({.label = "alpha"}, 1);
  PreparedModel prepared =
      PreparedModel::prepare(model.fragment.context(),
                             [&](Context& context) {
                               Graph graph(context);
                               const DeviceTensor x = graph.tensor<float>({kCount}, {.label = "x"});
                               const std::vector<DeviceTensor> once = model.fragment.record(graph, {x});
                               const std::vector<DeviceTensor> twice = model.fragment.record(graph, once);
                               return InferenceGraph{.graph = std::move(graph), .inputs = {x}, .outputs = twice};
                             },
                             {.slots = 2});
  const std::vector<float> input = small_numbers(1);
  for (const float a : {3.0f, 4.0f}) {
    std::vector<float> expected;
    for (const float value : input) expected.push_back(value * a * a);
    for (int slot = 0; slot < 2; ++slot)
      CHECK(request(prepared, input, [&](ModelSlot& taken) { taken.set(model.alpha, a); }) == expected);
  }
  CHECK(device.patches() == 2 * 2 * 2);  // Two nodes, values and slots.
}

TEST_CASE("Slots that were built alone take late values too", "[model][late]") {
  const ScaleModel model({.label = "alpha"}, 1);
  std::uint32_t made = 0;
  PreparedModel prepared =
      PreparedModel::prepare(model.fragment.context(),
                             [&](Context& context) {
                               Graph graph(context);
                               const DeviceTensor x = graph.tensor<float>({kCount}, {.label = "x"});
                               std::vector<DeviceTensor> last = model.fragment.record(graph, {x});
                               if (made++ == 1) graph.fill(graph.tensor<float>({kCount}, {.label = "more"}), 1);
                               return InferenceGraph{.graph = std::move(graph), .inputs = {x}, .outputs = last};
                             },
                             {.slots = 3});
  CHECK(prepared.odd_slots() == std::vector<std::uint32_t>{1});
  const std::vector<float> input = small_numbers(1);
  for (int slot = 0; slot < 3; ++slot) {
    const auto a = static_cast<float>(2 + slot);
    std::vector<float> expected;
    for (const float value : input) expected.push_back(value * a);
    CHECK(request(prepared, input, [&](ModelSlot& taken) { taken.set(model.alpha, a); }) == expected);
  }
}

TEST_CASE("Late parameters are shown in the topology with their labels", "[model][late]") {
  const ScaleModel model({.label = "alpha"}, 12);
  const PreparedModel prepared = model.fragment.prepare();
  const Topology& topology = prepared.topology();
  std::size_t late = 0;
  for (const TopologyNode& node : topology.nodes) {
    const auto* kernel = std::get_if<KernelDetail>(&node.detail);
    if (kernel == nullptr || kernel->late.empty()) continue;
    CHECK(kernel->late.front().index == 2);
    CHECK(kernel->late.front().label == (late < kAlphaNodes ? "alpha" : "beta"));
    ++late;
  }
  CHECK(late == kAlphaNodes + kBetaNodes);
  CHECK(contains(to_text(topology), "late(2 \"alpha\")"));
  CHECK(contains(to_dot(topology), "late(2 "));
  CHECK(contains(to_json(topology), "\"parameter\": 2"));
}

TEST_CASE("The nodes that were set for a request are in its trace and in the statistics", "[model][late][R39]") {
  const ScaleModel model;
  PreparedModel prepared = model.fragment.prepare({.slots = 1});
  const std::vector<float> input = small_numbers(1);
  TraceRecording recording = prepared.context().start_trace({.capacity = 100});
  for (const float a : {5.0f, 5.0f, 6.0f})
    static_cast<void>(request(prepared, input, [&](ModelSlot& slot) { slot.set(model.alpha, a); }));
  const Trace trace = std::move(recording).stop();
  std::vector<std::uint64_t> patched;
  for (const TraceEvent& event : trace.events) {
    if (event.kind == TraceEventKind::launch) {
      patched.push_back(event.patched);
    } else {
      CHECK(event.patched == 0);
    }
  }
  CHECK(patched == std::vector<std::uint64_t>{kAlphaNodes, 0, kAlphaNodes});
  CHECK(contains(to_json(trace), "\"patched\":3"));
  CHECK(prepared.statistics().patched_nodes == 2 * kAlphaNodes);
  CHECK(prepared.context().statistics().slots.patched_nodes == 2 * kAlphaNodes);
}

TEST_CASE("Plans with other late scalars have other keys", "[model][late]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint32_t>({1}, {.label = "x"});
  const auto one = test.session.late<std::uint32_t>({.label = "one", .value = 1});
  const auto other = test.session.late<std::uint32_t>({.label = "other", .value = 1});
  const KernelId kernel = test.increment;
  const ModelDefinition definition = test.freeze();
  const auto key = [&](const Argument& amount) {
    return PlanKey::of(
        definition.fragment(trusted,
                            {.inputs = {x}, .outputs = {x}, .commands = {dispatch(kernel, grid(1), {x, amount})}}),
        {});
  };
  CHECK(key(one) == key(one));
  CHECK(!(key(one) == key(other)));
  CHECK(!(key(one) == key(1u)));
}

TEST_CASE("A warm request with a changed late scalar neither allocates nor locks beside the device's calls",
          "[model][late][counted]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), std::make_shared<MarkingDevice>(counting));
  const ScaleModel model({.label = "alpha"}, 12);
  PreparedModel prepared = model.fragment.prepare({.slots = 2});
  const std::vector<float> input = small_numbers(1);
  static_cast<void>(request(prepared, input, [&](ModelSlot& slot) { slot.set(model.alpha, 1.0f); }));
  counting->reset();
  call_count = {};
  constexpr std::uint32_t kRequests = 100;
  float sum = 0;
  for (std::uint32_t i = 0; i < kRequests; ++i) {
    ModelSlot slot = prepared.acquire(in_a_minute()).value();
    std::ranges::copy(input, slot.input(model.x).begin());
    slot.set(model.alpha, static_cast<float>(i));
    Inference run = std::move(slot).submit();
    while (!run.completion().is_done()) {
    }
    if (run.wait(in_a_minute())) sum += run.output(model.y)[0];
  }
  const CallCount seen = call_count;
  CHECK(sum == static_cast<float>(kRequests * (kRequests - 1) / 2));
  CHECK(seen.outside == Calls{});
  CHECK(counting->count(Verb::launch) == kRequests);
  CHECK(counting->total() == kRequests + counting->count(Verb::set_executable_node));
  CHECK(counting->count(Verb::set_executable_node) >= (kRequests - 2) * kAlphaNodes);
}

TEST_CASE("A model without late arguments sets no node for a request", "[model][late]") {
  const CountedDevice device;
  PreparedModel prepared = XorModel(kCount).fragment.prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  for (int i = 0; i < 3; ++i) CHECK(infer(prepared, input) == xored(input, 0xff));
  CHECK(device.patches() == 0);
  CHECK(prepared.statistics().patched_nodes == 0);
}

TEST_CASE("Small values of a request ride as an input of their own", "[model][late]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint32_t>({2}, {.label = "x"});
  const auto y = test.session.allocate<std::uint32_t>({2}, {.label = "y"});
  // A cell of one number, read by the kernel from memory and not from its parameters.
  const auto amounts = test.session.allocate<std::uint32_t>({2}, {.label = "amounts"});
  const auto copy = test.slow_copy;
  PreparedModel prepared =
      test.freeze().prepare(trusted, {.inputs = {x, amounts},
                                      .outputs = {y},
                                      .commands = {copy(workload(1), x.slice(0, 4), y.slice(0, 4), 1ul, 0ul),
                                                   copy(workload(1), amounts.slice(4, 4), y.slice(4, 4), 1ul, 0ul)}});
  for (const std::uint32_t value : {7u, 9u}) {
    ModelSlot slot = prepared.acquire(in_a_minute()).value();
    slot.input(x)[0] = 1;
    slot.input(amounts)[1] = value;
    Inference run = std::move(slot).submit();
    REQUIRE(run.wait(in_a_minute()));
    CHECK(run.output(y)[0] == 1);
    CHECK(run.output(y)[1] == value);
  }
}

}  // namespace weft::test
