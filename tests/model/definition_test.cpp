#include "catch.h"
#include "device/faults.h"
#include "device/registry.h"
#include "graph_state.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include "support/model_state.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

}  // namespace

TEST_CASE("Scratch is a size and a placement until a slot is prepared", "[model][S6]") {
  TestSession test;
  const auto w = test.weight(fresh_bytes(kCount, 1));
  const auto x = test.session.allocate<std::uint8_t>({4096}, {.label = "x"});
  const auto s = test.session.allocate<std::uint8_t>({kCount}, {.label = "s", .placement = Placement::shared});
  const ModelDefinition model = test.freeze();
  const MemoryStatistics memory = test.context.memory();
  CHECK(memory.requested.live_bytes == kCount);  // The weight alone.
  CHECK(memory.requested.allocations == 1);
  CHECK(memory.staging == MemoryCounters{});

  const ModelFragment fragment =
      model.fragment(trusted, {.outputs = {s}, .commands = {fill(x, 1), test.xor_of(w, s, 0)}});
  Graph graph(test.context);
  static_cast<void>(fragment.record(graph, {}));
  std::vector<std::pair<std::uint64_t, Placement>> scratch;
  for (const Allocation& allocation : GraphAccess::state(graph).allocations) {
    if (allocation.weight == nullptr) scratch.emplace_back(allocation.bytes, allocation.placement);
  }
  CHECK(scratch ==
        std::vector<std::pair<std::uint64_t, Placement>>{{4096, Placement::device}, {kCount, Placement::shared}});
}

TEST_CASE("Regions and kernels of a session mean the same after its freeze", "[model][S7]") {
  TestSession test;
  const auto a = test.session.allocate<std::uint8_t>({8}, {.label = "a"});
  const auto w = test.weight(std::vector<std::uint8_t>(8, 5));
  const auto b = test.session.allocate<std::uint8_t>({8}, {.label = "b"});
  KernelSpec two_blocks = xor_bytes_spec();
  two_blocks.launch = [](std::span<const std::uint64_t>) { return LaunchConfig{.grid = grid(2)}; };
  const KernelId last = test.session.load(two_blocks);
  const ModelDefinition model = test.freeze();
  CHECK(model.launch_config(test.xor_bytes, {}).grid == grid(1));
  CHECK(model.launch_config(last, {}).grid == grid(2));
  PreparedModel prepared =
      model
          .fragment(trusted,
                    {.outputs = {a, b},
                     .commands = {fill(a, 9), dispatch(last, workload(8), {w, b, std::uint64_t{8}, std::uint8_t{1}})}})
          .prepare();
  Inference run = submit(prepared, {});
  REQUIRE(run.wait(in_a_minute()));
  CHECK(run.output(a)[0] == 9);
  CHECK(run.output(b)[0] == (5 ^ 1));

  // The same indices of another session mean nothing here.
  TestSession other(test.context);
  const auto other_a = other.session.allocate<std::uint8_t>({8}, {.label = "a"});
  CHECK(other_a.allocation == a.allocation);
  const Error error = check_refusal_changes_nothing(
      [&] { return ModelState(test.context, prepared); },
      [&] { static_cast<void>(model.fragment(trusted, {.commands = {fill(other_a, 1)}})); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.sentence(), "The region belongs to session"));
}

TEST_CASE("A definition and its fragments share the context that it was frozen into", "[model][S9]") {
  XorModel model(kCount);
  const Context context = model.fragment.context();
  TestSession test(context);
  const auto w = test.weight(fresh_bytes(kCount, 1));
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  const std::uint64_t before = context.memory().requested.live_bytes;
  const ModelDefinition definition = test.freeze();
  CHECK(definition.context() == context);
  CHECK(definition.context().memory().requested.live_bytes == before + kCount);
  const ModelFragment fragment = definition.fragment(trusted, {.outputs = {y}, .commands = {test.xor_of(w, y, 1)}});
  CHECK(fragment.context() == context);
  const PreparedModel prepared = fragment.prepare();
  CHECK(prepared.context() == context);
  CHECK(context.memory().requested.live_bytes == before + 2 * kCount);
}

TEST_CASE("A launch rule's own error comes through", "[model][S13]") {
  TestSession test;
  KernelSpec spec = xor_bytes_spec();
  spec.launch = [](std::span<const std::uint64_t> words) -> LaunchConfig {
    throw Error(ErrorCode::unsupported, "The rule takes no " + std::to_string(words[0]) + ".");
  };
  const KernelId kernel = test.session.load(spec);
  const auto x = test.session.allocate<std::uint8_t>({kCount});
  const auto y = test.session.allocate<std::uint8_t>({kCount});
  const ModelDefinition model = test.freeze();
  const std::vector<std::uint64_t> words{13};
  const auto check_refused = [&](const auto& call, const std::vector<std::string>& contexts) {
    const Error error = check_refusal_changes_nothing([&] { return ModelState(test.context); }, call);
    CHECK(error.code() == ErrorCode::unsupported);
    CHECK(error.sentence() == "The rule takes no 13.");
    CHECK(error.contexts() == contexts);
  };
  check_refused([&] { static_cast<void>(model.launch_config(kernel, words)); }, {});
  check_refused(
      [&] {
        static_cast<void>(
            model.fragment(trusted, {.commands = {dispatch(kernel, workload(13), {x, y, kCount, std::uint8_t{1}})}}));
      },
      {"validating commands[0], dispatch of \"xor_bytes\""});
}

TEST_CASE("A kernel loaded on another device reaches no definition of this one", "[model][S39]") {
  const Context context = Context::open(test_device());
  {
    // Another device under the same name.
    const ScopedDevice scoped(test_device(), std::make_shared<CountingDevice>(open_device(test_device())));
    ModelSession session(test_device());
    static_cast<void>(session.load(xor_bytes));
    const Error error = check_refusal_changes_nothing([&] { return ModelState(context); },
                                                      [&] { static_cast<void>(std::move(session).freeze(context)); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == "The session is of device " + to_string(test_device()) + " and the context of " +
                                  to_string(test_device()) + ".");
  }
  TestSession test(context);
  const auto y = test.session.allocate<std::uint8_t>({kCount});
  PreparedModel prepared = test.freeze().fragment(trusted, {.outputs = {y}, .commands = {fill(y, 3)}}).prepare();
  CHECK(infer(prepared, {}) == std::vector<std::uint8_t>(kCount, 3));
}

TEST_CASE("Making a fragment asks nothing of the device", "[model][S19][S42]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  const ModelDefinition model = test.freeze();
  const MemoryStatistics memory = test.context.memory();
  counting->reset();
  const ModelFragment fragment =
      model.fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {fill(y, 1), test.xor_of(x, y, 1)}});
  static_cast<void>(
      refusal([&] { static_cast<void>(model.fragment(trusted, {.commands = {fill(x.slice(0, 0), 1)}})); }));
  CHECK(counting->total() == 0);
  CHECK(test.context.memory() == memory);
  PreparedModel prepared = fragment.prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  CHECK(infer(prepared, input) == xored(input, 1));
}

TEST_CASE("Preparing a definition is making the fragment and preparing that", "[model][S43]") {
  TestSession test;
  const auto w = test.weight(fresh_bytes(kCount, 1));
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  const ModelDefinition model = test.freeze();
  const std::vector<FragmentOptions> refused{
      {.inputs = {w}, .outputs = {w}, .commands = {fill(w, 1)}, .label = "inputs first"},
      {.outputs = {y}, .commands = {fill(y, 1), fill(w, 1)}},
      {.outputs = {y}, .label = "no commands"},
  };
  const auto state = [&] { return ModelState(test.context); };
  for (const FragmentOptions& options : refused) {
    for (const std::uint32_t slots : {0u, 2u}) {
      const Error apart = check_refusal_changes_nothing(
          state, [&] { static_cast<void>(model.fragment(trusted, options).prepare({.slots = slots})); });
      const Error at_once = check_refusal_changes_nothing(
          state, [&] { static_cast<void>(model.prepare(trusted, options, {.slots = slots})); });
      INFO(apart.what());
      CHECK(at_once.code() == apart.code());
      CHECK(at_once.sentence() == apart.sentence());
      CHECK(at_once.contexts() == apart.contexts());
    }
  }
  PreparedModel prepared =
      model.prepare(trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, y, 9)}}, {.slots = 2});
  CHECK(prepared.slots() == 2);
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 2);
  CHECK(infer(prepared, input) == xored(input, 9));
}

TEST_CASE("All that a pool needs is made when it is prepared and weights are not made again", "[model][S50]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  TestSession test;
  const auto w = test.weight(fresh_bytes(kCount, 1));
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto y = test.session.allocate<std::uint8_t>({2 * kCount}, {.label = "y"});
  const ModelFragment fragment = test.freeze().fragment(
      trusted, {.inputs = {x},
                .outputs = {y},
                .commands = {test.xor_of(x, y.slice(0, kCount), 1), test.xor_of(w, y.slice(kCount, kCount), 0)}});
  CHECK(test.context.memory().requested.live_bytes == kCount);
  PreparedModel prepared = fragment.prepare({.slots = 3});
  const MemoryStatistics memory = test.context.memory();
  CHECK(memory.requested.live_bytes == kCount + 3 * (kCount + 2 * kCount));
  CHECK(memory.staging.live_bytes >= 3 * (kCount + 2 * kCount));

  counting->reset();
  for (std::uint64_t round = 0; round < 9; ++round) {
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, round);
    std::vector<std::uint8_t> expected = xored(input, 1);
    const std::vector<std::uint8_t> weight = fresh_bytes(kCount, 1);
    expected.insert(expected.end(), weight.begin(), weight.end());
    CHECK(infer(prepared, input) == expected);
  }
  CHECK(test.context.memory() == memory);
  CHECK(counting->count(Verb::launch) == 9);
  for (const Verb verb : {Verb::allocate, Verb::allocate_pinned, Verb::set_node, Verb::set_executable_node,
                          Verb::instantiate, Verb::add_node, Verb::copy}) {
    INFO(to_string(verb));
    CHECK(counting->count(verb) == 0);
  }
}

}  // namespace weft::test
