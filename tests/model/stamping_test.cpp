#include "catch.h"
#include "device/faults.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_state.h"
#include "support/requests.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// Slots are stamped from templates, which are pointed at one slot's memory after another's.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

std::shared_ptr<CountingDevice> count_calls() { return std::make_shared<CountingDevice>(open_device(test_device())); }

/// Each slot is given its own input, and all of them run at once, twice.
void check_answers(PreparedModel& pool, std::uint8_t mask = 0xff, RequestForm form = kHostHost) {
  for (std::uint32_t round = 0; round < 2; ++round) {
    std::vector<Inference> runs;
    for (std::uint32_t i = 0; i < pool.slots(); ++i)
      runs.push_back(start(pool, form, fresh_bytes(kCount, round * pool.slots() + i)));
    for (std::uint32_t i = 0; i < pool.slots(); ++i)
      CHECK(answer(runs[i], form) == xored(fresh_bytes(kCount, round * pool.slots() + i), mask));
  }
}

/// A graph of a few stages as a factory makes it.
struct Stages {
  explicit Stages(const Context& home) : context(home) {
    TestSession test(home);
    const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
    const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
    const ModelDefinition model = test.freeze();
    for (std::uint8_t mask = 0; mask < 8; ++mask) {
      fragments.push_back(model.fragment(
          trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, y, mask).label("xor")}, .label = "s"}));
    }
  }
  /// y = x ^ (masks, one stage each).
  [[nodiscard]] InferenceGraph graph(const std::vector<std::size_t>& masks) const {
    Graph graph(context, "stages");
    const DeviceTensor input = graph.tensor<std::uint8_t>({kCount}, {.label = "in"});
    std::vector<DeviceTensor> tensors{input};
    for (const std::size_t mask : masks) tensors = fragments[mask].record(graph, tensors);
    return {std::move(graph), {input}, std::move(tensors)};
  }

  Context context;
  std::vector<ModelFragment> fragments;
};

}  // namespace

TEST_CASE("A fragment's slots are stamped from one graph for each form", "[model][stamping][S45]") {
  const auto counting = count_calls();
  const ScopedDevice scoped(test_device(), counting);
  const XorModel model(kCount);
  counting->reset();
  PreparedModel pool = model.fragment.prepare({.slots = 6, .forms = {kHostHost, kDeviceDevice}});
  CHECK(counting->count(Verb::create_graph) == 2);
  CHECK(counting->count(Verb::add_node) == 2 * 4);
  CHECK(counting->count(Verb::set_node) == 2 * 4 * 5);
  CHECK(counting->count(Verb::instantiate) == 2 * 6);
  CHECK(counting->count(Verb::upload) == 2 * 6);
  CHECK(counting->count(Verb::set_executable_node) == 0);
  CHECK(pool.odd_slots().empty());
  for (std::uint32_t slot = 0; slot < 6; ++slot) {
    for (std::size_t form = 0; form < 2; ++form) {
      CHECK(pool.node_counts(slot, form).kernel_nodes == 2);
      CHECK(pool.node_counts(slot, form).own_nodes == 2);
    }
  }
  check_answers(pool);
  check_answers(pool, 0xff, kDeviceDevice);
}

TEST_CASE("A factory's slots are stamped where their topologies are the same", "[model][stamping][S45]") {
  const auto counting = count_calls();
  const ScopedDevice scoped(test_device(), counting);
  const Context context = Context::open(test_device());
  const Stages stages(context);
  counting->reset();
  PreparedModel pool = PreparedModel::prepare(context, [&](Context&) { return stages.graph({1, 2, 4}); }, {.slots = 5});
  CHECK(counting->count(Verb::create_graph) == 1);
  CHECK(counting->count(Verb::add_node) == 5);
  CHECK(counting->count(Verb::set_node) == 4 * 5);
  CHECK(pool.odd_slots().empty());
  check_answers(pool, 7);
}

TEST_CASE("Slots of one topology keep scalars of their own", "[model][stamping]") {
  const Context context = Context::open(test_device());
  const Stages stages(context);
  std::size_t slot = 0;
  PreparedModel pool = PreparedModel::prepare(context,
                                              [&](Context&) {
                                                return stages.graph({slot++, 0});
                                              },
                                              {.slots = 6});
  CHECK(pool.odd_slots().empty());
  std::set<std::uint8_t> masks;
  std::vector<Inference> runs;
  const std::vector<std::uint8_t> zeros(kCount, 0);
  for (int i = 0; i < 6; ++i) runs.push_back(submit(pool, zeros));
  for (Inference& run : runs) masks.insert(result(run).back());
  CHECK(masks == std::set<std::uint8_t>{0, 1, 2, 3, 4, 5});
}

TEST_CASE("A factory's slots of another topology are built alone and told", "[model][stamping]") {
  const auto counting = count_calls();
  const ScopedDevice scoped(test_device(), counting);
  const Context context = Context::open(test_device());
  const Stages stages(context);
  std::uint32_t slot = 0;
  counting->reset();
  PreparedModel pool = PreparedModel::prepare(
      context,
      [&](Context&) {
        const std::uint32_t index = slot++;
        return stages.graph(index % 3 == 2 ? std::vector<std::size_t>{3, 1, 1, 4} : std::vector<std::size_t>{7});
      },
      {.slots = 7, .forms = {kHostHost, kHostDevice}});
  CHECK(pool.odd_slots() == std::vector<std::uint32_t>{2, 5});
  CHECK(counting->count(Verb::create_graph) == 2 * 3);
  CHECK(counting->count(Verb::add_node) == 2 * 3 + 2 * 2 * 6);
  CHECK(counting->count(Verb::set_node) == 2 * 4 * 3);
  for (std::uint32_t i = 0; i < 7; ++i) CHECK(pool.node_counts(i, 1).kernel_nodes == (i % 3 == 2 ? 4 : 1));
  check_answers(pool, 7);
  check_answers(pool, 7, kHostDevice);
}

TEST_CASE("Slots that differ only in their memory outside are stamped and keep it apart", "[model][stamping][S47]") {
  const Context context = Context::open(test_device());
  const Stages stages(context);
  const Buffer memory = context.allocate(8 * 256, {.label = "outputs"});
  std::uint32_t slot = 0;
  PreparedModel pool = PreparedModel::prepare(context,
                                              [&](Context& home) {
                                                const std::uint32_t index = slot++;
                                                Graph graph(home, "outside");
                                                const DeviceTensor input = graph.tensor<std::uint8_t>({kCount});
                                                const DeviceTensor target =
                                                    graph.bind(memory.tensor(bytes_desc(kCount), 256 * index));
                                                graph.copy(stages.fragments[5].record(graph, {input})[0], target);
                                                return InferenceGraph{std::move(graph), {input}, {target}};
                                              },
                                              {.slots = 4, .forms = {kHostHost, kHostDevice}});
  check_answers(pool, 5);
  check_answers(pool, 5, kHostDevice);
  const Error error = refusal([&] {
    static_cast<void>(PreparedModel::prepare(context,
                                             [&](Context& home) {
                                               Graph graph(home, "overlap");
                                               const DeviceTensor target =
                                                   graph.bind(memory.tensor(bytes_desc(kCount), slot++ == 4 ? 0 : 63));
                                               graph.fill(target, 1);
                                               return InferenceGraph{std::move(graph), {}, {target}};
                                             },
                                             {.slots = 2}));
  });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() ==
        "The outputs[0] of slot 1 shares bytes with the outputs[0] of slot 0; slots run at the same time.");
}

TEST_CASE("Inputs of two slots that overlap are refused though both are only read", "[model][S47][S49]") {
  const Context context = Context::open(test_device());
  const Stages stages(context);
  const DeviceTensor shared = ready(context, fresh_bytes(kCount, 1));
  const Error error = check_refusal_changes_nothing(
      [&] { return ModelState(context); },
      [&] {
        static_cast<void>(
            PreparedModel::prepare(context,
                                   [&](Context& home) {
                                     Graph graph(home, "readers");
                                     std::vector<DeviceTensor> outputs = stages.fragments[1].record(graph, {shared});
                                     return InferenceGraph{std::move(graph), {shared}, std::move(outputs)};
                                   },
                                   {.slots = 2}));
      });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() ==
        "The inputs[0] of slot 1 shares bytes with the inputs[0] of slot 0; slots run at the same time.");
}

TEST_CASE("A factory whose descriptors vary is refused and its slots are freed", "[model][S48][S49]") {
  const Context context = Context::open(test_device());
  const ModelState before(context);
  std::uint32_t slot = 0;
  const Error error = refusal([&] {
    static_cast<void>(
        PreparedModel::prepare(context,
                               [&](Context& home) {
                                 Graph graph(home);
                                 const DeviceTensor y = graph.tensor({DType::u8, slot++ < 2 ? Shape{4, 2} : Shape{8}});
                                 graph.fill(y, 1);
                                 return InferenceGraph{std::move(graph), {}, {y}};
                               },
                               {.slots = 3}));
  });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The outputs[0] of the slot is u8[8]; that of slot 0 is u8[4,2].");
  CHECK(error.contexts() == std::vector<std::string>{"preparing slot 2 of 3"});
  CHECK(ModelState(context) == before);
}

TEST_CASE("A kernel that needs much shared memory may come with any slot", "[model][stamping][case22]") {
  const Context context = Context::open(test_device());
  const auto make = [&](std::uint32_t extra) {
    TestSession test(context);
    KernelSpec spec = increment_spec();
    spec.dynamic_shared_bytes = 64 * 1024 + extra;
    const KernelId kernel = test.session.load(spec);
    const auto n = test.session.allocate<std::uint32_t>({1}, {.label = "n"});
    return test.freeze().fragment(
        trusted, {.inputs = {n}, .outputs = {n}, .commands = {dispatch(kernel, grid(1), {n, std::uint32_t{3}})}});
  };
  // The same symbol from two modules: each has a limit of its own.
  const std::vector<ModelFragment> fragments{make(0), make(0), make(0)};
  std::size_t slot = 0;
  PreparedModel pool = PreparedModel::prepare(context,
                                              [&](Context& home) {
                                                Graph graph(home);
                                                const DeviceTensor n = graph.tensor<std::uint32_t>({1}, {.label = "n"});
                                                std::vector<DeviceTensor> outputs =
                                                    fragments[slot++].record(graph, {n});
                                                return InferenceGraph{std::move(graph), {n}, std::move(outputs)};
                                              },
                                              {.slots = 3});
  CHECK(pool.odd_slots().empty());
  for (std::uint32_t i = 0; i < 6; ++i) {
    ModelSlot taken = pool.acquire(in_a_minute()).value();
    taken.input<std::uint32_t>(0)[0] = i;
    Inference run = std::move(taken).submit();
    REQUIRE(run.wait(in_a_minute()));
    CHECK(run.output<std::uint32_t>(0)[0] == i + 3);
  }
}

TEST_CASE("Large graphs are stamped by several threads and every slot answers for itself", "[model][stamping]") {
  const auto counting = count_calls();
  const ScopedDevice scoped(test_device(), counting);
  constexpr std::uint32_t kSlots = 11;
  constexpr std::uint32_t kDispatches = 700;
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto h = test.session.allocate<std::uint8_t>({kCount}, {.label = "h"});
  std::vector<Command> commands;
  for (std::uint32_t i = 0; i < kDispatches; ++i)
    commands.push_back(i % 2 == 0 ? test.xor_of(x, h, 0x81) : test.xor_of(h, x, 0x42));
  const ModelFragment fragment =
      test.freeze().fragment(trusted, {.inputs = {x}, .outputs = {x}, .commands = std::move(commands)});
  counting->reset();
  PreparedModel pool = fragment.prepare({.slots = kSlots, .forms = {kHostHost, kDeviceDevice}});
  const std::uint64_t threads = counting->count(Verb::create_graph) / 2;
  CHECK(threads == std::min(4u, std::max(1u, std::thread::hardware_concurrency())));
  CHECK(counting->count(Verb::create_graph) == 2 * threads);
  CHECK(counting->count(Verb::add_node) == 2 * threads * (kDispatches + 2));
  CHECK(counting->count(Verb::set_node) == 2 * (kSlots - threads) * (kDispatches + 2));
  const std::uint8_t mask = (kDispatches / 2) % 2 == 0 ? 0 : 0x81 ^ 0x42;
  check_answers(pool, mask);
  check_answers(pool, mask, kDeviceDevice);
  for (std::uint32_t slot = 0; slot < kSlots; ++slot) CHECK(pool.node_counts(slot, 1).kernel_nodes == kDispatches);
}

TEST_CASE("A failure of one stamping thread frees what all of them made", "[model][stamping][S49]") {
  for (const Verb verb : {Verb::set_node, Verb::instantiate, Verb::create_graph, Verb::upload}) {
    INFO(to_string(verb));
    const auto failing = std::make_shared<FailingDevice>(open_device(test_device()), verb,
                                                         verb == Verb::create_graph ? 0 : 3, StatusCode::out_of_memory);
    const ScopedDevice scoped(test_device(), failing);
    TestSession test;
    const auto x = test.session.allocate<std::uint32_t>({1}, {.label = "x"});
    const ModelFragment fragment = test.freeze().fragment(
        trusted, {.inputs = {x},
                  .outputs = {x},
                  .commands = std::vector<Command>(500, test.increment(grid(1), x, std::uint32_t{1}))});
    const std::vector<std::uint64_t> before = live(test.context);
    const Error error = refusal([&] { static_cast<void>(fragment.prepare({.slots = 8})); });
    CHECK(error.code() == ErrorCode::out_of_memory);
    CHECK(contains(error.contexts().back(), "preparing slot "));
    CHECK(eventually([&] { return live(test.context) == before; }));
    PreparedModel pool = fragment.prepare({.slots = 8});
    ModelSlot slot = pool.try_acquire().value();
    slot.input(x)[0] = 1;
    Inference run = std::move(slot).submit();
    REQUIRE(run.wait(in_a_minute()));
    CHECK(run.output(x)[0] == 501);
  }
}

TEST_CASE("A prepare of several slots and forms that fails at any call leaves nothing",
          "[model][stamping][S49][host-only]") {
  const PrepareOptions options{.slots = 3, .forms = {kHostHost, kDeviceDevice}};
  const auto device = make_host_device();
  std::uint64_t calls = 0;
  const auto attempt = [&](std::uint64_t call) {
    const auto failing = std::make_shared<FailingDevice>(device, std::nullopt, call, StatusCode::out_of_memory);
    const ScopedDevice scoped(Device::host(), failing);
    const XorModel model(kCount);
    const Context context = model.fragment.context();
    device->drain();
    const HostObjects before = device->objects();
    const std::vector<std::uint64_t> memory = live(context);
    const std::uint64_t first = failing->calls();
    bool has_thrown = false;
    try {
      const PreparedModel pool = model.fragment.prepare(options);
      calls = failing->calls() - first;
    } catch (const Error& error) {
      has_thrown = true;
      CHECK(error.code() == ErrorCode::out_of_memory);
    }
    device->drain();
    CHECK(live(context) == memory);
    device->drain();
    CHECK(device->objects() == before);
    CHECK(device->violations().empty());
    PreparedModel again = model.fragment.prepare(options);
    check_answers(again, 0xff, kDeviceDevice);
    return has_thrown;
  };
  CHECK(!attempt(~std::uint64_t{0}));
  std::uint64_t thrown = 0;
  const std::uint64_t first = [&] {
    const auto counting = std::make_shared<CountingDevice>(device);
    const ScopedDevice scoped(Device::host(), counting);
    const XorModel model(kCount);
    return counting->total();
  }();
  const std::uint64_t last = first + calls;
  for (std::uint64_t call = first; call < last; ++call) {
    INFO("call " << call - first << " of " << last - first);
    if (attempt(call)) ++thrown;
  }
  CHECK(thrown > 50);
}

}  // namespace weft::test
