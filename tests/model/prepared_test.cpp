#include "catch.h"
#include "device/faults.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/limits_device.h"
#include "support/model_fixture.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

void check_counts(const PreparedModel& model, std::uint64_t fills, std::uint64_t dispatches, std::uint64_t own) {
  for (std::uint32_t slot = 0; slot < model.slots(); ++slot) {
    INFO("slot " << slot);
    const NodeCounts counts = model.node_counts(slot);
    CHECK(counts.memset_nodes == fills);
    CHECK(counts.kernel_nodes == dispatches);
    CHECK(counts.own_nodes == own);
    CHECK(counts.total() == model.topology().nodes.size());
  }
}

std::size_t count_role(const PreparedModel& model, OwnRole role) {
  return static_cast<std::size_t>(std::ranges::count(model.topology().nodes, std::optional(role), &TopologyNode::role));
}

/// One input, `outputs` outputs made from it, each of `kCount` bytes.
ModelFragment fan_out(std::size_t outputs) {
  TestSession test;
  FragmentOptions options;
  options.inputs = {test.session.allocate<std::uint8_t>({kCount}, {.label = "x"})};
  for (std::size_t i = 0; i < outputs; ++i) {
    options.outputs.push_back(
        test.session.allocate<std::uint8_t>({kCount}, {.label = std::string("y") + std::to_string(i)}));
    options.commands.push_back(test.xor_of(options.inputs[0], options.outputs[i], static_cast<std::uint8_t>(1u << i)));
  }
  if (outputs == 0) {
    const Region hidden = test.session.allocate(kCount, {.label = "h"});
    options.commands.push_back(test.xor_of(options.inputs[0], hidden, 1));
  }
  return test.freeze().fragment(trusted, std::move(options));
}

void check_fan_out(const ModelFragment& fragment, std::size_t outputs, PrepareOptions options) {
  PreparedModel prepared = fragment.prepare(options);
  for (std::uint32_t round = 0; round < 5; ++round) {
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, round);
    Inference run = submit(prepared, input);
    REQUIRE(run.wait(in_a_minute()));
    for (std::size_t i = 0; i < outputs; ++i) {
      const std::vector<std::uint8_t> expected = xored(input, static_cast<std::uint8_t>(1u << i));
      CHECK(std::ranges::equal(run.output<std::uint8_t>(i), expected));
    }
  }
}

}  // namespace

TEST_CASE("Fills and dispatches give exactly as many memset and kernel nodes", "[model]") {
  for (const std::size_t fills : {0u, 1u, 5u}) {
    for (const std::size_t dispatches : {0u, 1u, 7u}) {
      if (fills + dispatches == 0) continue;
      INFO(fills << " fills and " << dispatches << " dispatches");
      TestSession test;
      const auto x = test.session.allocate<std::uint8_t>({kCount});
      const auto n = test.session.allocate<std::uint32_t>({1});
      FragmentOptions options{.inputs = {x}, .outputs = {n}};
      for (std::size_t i = 0; i < fills; ++i) options.commands.push_back(fill(n, static_cast<std::uint8_t>(i)));
      for (std::size_t i = 0; i < dispatches; ++i)
        options.commands.push_back(test.increment(grid(1), n, std::uint32_t{1}));
      const PreparedModel prepared = test.freeze().fragment(trusted, std::move(options)).prepare({.slots = 3});
      // The copy in is unordered to the rest, so that the completion is a node of its own.
      check_counts(prepared, fills, dispatches, 3);
      CHECK(prepared.topology().count(NodeKind::fill) == fills);
      CHECK(prepared.topology().count(NodeKind::dispatch) == dispatches);
    }
  }
}

TEST_CASE("A copy out that everything comes before carries the completion", "[model]") {
  const ModelFragment fragment = fan_out(1);
  const PreparedModel prepared = fragment.prepare();
  check_counts(prepared, 0, 1, 2);
  CHECK(count_role(prepared, OwnRole::copy_out) == 1);
  CHECK(count_role(prepared, OwnRole::completion) == 0);
  check_fan_out(fragment, 1, {.slots = 2});
}

TEST_CASE("Two copies out leave the completion to a node behind both", "[model]") {
  const ModelFragment fragment = fan_out(2);
  const PreparedModel prepared = fragment.prepare();
  check_counts(prepared, 0, 2, 4);
  CHECK(count_role(prepared, OwnRole::copy_out) == 2);
  CHECK(count_role(prepared, OwnRole::completion) == 1);
  const auto completion = static_cast<std::uint32_t>(prepared.topology().nodes.size() - 1);
  CHECK(std::ranges::count(prepared.topology().edges, completion, &TopologyEdge::to) == 2);
  check_fan_out(fragment, 2, {.slots = 2});
}

TEST_CASE("In serial order the last of several copies out carries the completion", "[model]") {
  const ModelFragment fragment = fan_out(3);
  const PreparedModel prepared = fragment.prepare({.order = Order::serial});
  check_counts(prepared, 0, 3, 4);
  CHECK(count_role(prepared, OwnRole::completion) == 0);
  check_fan_out(fragment, 3, {.slots = 2, .order = Order::serial});
}

TEST_CASE("A model without outputs completes", "[model][S24]") {
  const ModelFragment fragment = fan_out(0);
  const PreparedModel prepared = fragment.prepare();
  check_counts(prepared, 0, 1, 2);
  CHECK(count_role(prepared, OwnRole::completion) == 1);
  check_fan_out(fragment, 0, {});
}

TEST_CASE("A model without inputs completes", "[model][S24]") {
  TestSession test;
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  PreparedModel prepared = test.freeze().fragment(trusted, {.outputs = {y}, .commands = {fill(y, 0xab)}}).prepare();
  check_counts(prepared, 1, 0, 1);
  CHECK(infer(prepared, {}) == std::vector<std::uint8_t>(kCount, 0xab));
}

TEST_CASE("Copy engines carry no completion", "[model]") {
  const ModelFragment fragment = fan_out(1);
  const PreparedModel prepared = fragment.prepare({.copies = CopyMethod::engine});
  check_counts(prepared, 0, 1, 3);
  CHECK(count_role(prepared, OwnRole::completion) == 1);
  for (const TopologyNode& node : prepared.topology().nodes) {
    const bool is_copy = node.role == OwnRole::copy_in || node.role == OwnRole::copy_out;
    CHECK(std::holds_alternative<CopyDetail>(node.detail) == is_copy);
  }
  check_fan_out(fragment, 1, {.slots = 2, .copies = CopyMethod::engine});
}

TEST_CASE("Automatic copies take a kernel up to the published size and an engine beyond", "[model]") {
  for (const std::uint64_t bytes : {kCopyKernelBytes, kCopyKernelBytes + 1}) {
    INFO(bytes);
    const XorModel model(bytes);
    PreparedModel prepared = model.fragment.prepare();
    const bool by_engine = bytes > kCopyKernelBytes;
    CHECK(std::ranges::count_if(prepared.topology().nodes, [](const TopologyNode& node) {
            return std::holds_alternative<CopyDetail>(node.detail);
          }) == (by_engine ? 2 : 0));
    const std::vector<std::uint8_t> input = fresh_bytes(bytes, 3);
    CHECK(infer(prepared, input) == xored(input, 0xff));
    PreparedModel by_kernel = model.fragment.prepare({.copies = CopyMethod::kernel});
    CHECK(count_role(by_kernel, OwnRole::completion) == 0);
    CHECK(infer(by_kernel, input) == xored(input, 0xff));
  }
}

TEST_CASE("The topology of a small model is a stable text", "[model]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  const auto n = test.session.allocate<std::uint32_t>({1}, {.label = "n"});
  const auto w = test.weight(std::vector<std::uint8_t>(kCount, 7));
  const ModelFragment fragment = test.freeze().fragment(
      trusted, {.inputs = {x},
                .outputs = {y},
                .commands = {fill(n, 0).label("clear"), test.increment(grid(1), n, std::uint32_t{5}).label("count"),
                             test.xor_of(x, y, 1).label("first"), test.xor_of(w, x, 2).label("over"),
                             test.xor_of(w, x.slice(0, 8), 3).label("stated").after({1})},
                .label = "small"});
  CHECK(
      to_text(fragment.prepare({.slots = 2}).topology()) ==
      R"(graph "small": 1 fill, 4 dispatches, 3 own nodes, 8 edges, parallel, 2 slots, 132 bytes requested, 1024 reserved
a0 input "x" 64 bytes at 0
a1 output "y" 64 bytes at 256
a2 scratch "n" 4 bytes at 512
a3 weight "w" 64 bytes
a4 own "control" 256 bytes at 768
a5 own "completion word" 128 bytes
a6 own "x staging" 64 bytes
a7 own "y staging" 64 bytes
n0 own copy-in "copy in x" weft_copy grid(1,1,1) block(256,1,1)
n1 fill "clear" 4 bytes value 0x00
n2 dispatch "count" increment grid(1,1,1) block(1,1,1) <- n1 [raw "n" 0..4; waw "n" 0..4]
n3 dispatch "first" xor_bytes grid(1,1,1) block(256,1,1) <- n0 [raw "x" 0..64]
n4 dispatch "over" xor_bytes grid(1,1,1) block(256,1,1) <- n3 [war "x" 0..64]
n5 dispatch "stated" xor_bytes grid(1,1,1) block(256,1,1) <- n2 [stated], n4 [waw "x" 0..8]
n6 own copy-out "copy out y" weft_copy grid(1,1,1) block(256,1,1) <- n3 [raw "y" 0..64]
n7 own completion "complete" weft_complete grid(1,1,1) block(1,1,1) <- n5, ~n6
)");
}

TEST_CASE("Serial order is one chain of all commands and gives the same answers", "[model]") {
  const ModelFragment fragment = fan_out(4);
  const PreparedModel serial = fragment.prepare({.order = Order::serial});
  const Topology& topology = serial.topology();
  REQUIRE(topology.edges.size() + 1 == topology.nodes.size());
  for (std::uint32_t i = 0; i < topology.edges.size(); ++i) {
    CHECK(topology.edges[i].from == i);
    CHECK(topology.edges[i].to == i + 1);
  }
  CHECK(fragment.prepare().topology().edges.size() != topology.edges.size());
  check_fan_out(fragment, 4, {.slots = 3, .order = Order::serial});
}

TEST_CASE("A stated order joins commands that share no byte", "[model]") {
  const auto edges = [](bool stated) {
    TestSession test;
    const auto y = test.session.allocate<std::uint8_t>({kCount});
    const auto z = test.session.allocate<std::uint8_t>({kCount});
    Command second = fill(z, 2).label("second");
    if (stated) second.after({0});
    const PreparedModel prepared = test.freeze().fragment(trusted, {.commands = {fill(y, 1), second}}).prepare();
    std::vector<std::pair<std::uint32_t, std::uint32_t>> result;
    for (const TopologyEdge& edge : prepared.topology().edges) result.emplace_back(edge.from, edge.to);
    return result;
  };
  using Edges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;
  CHECK(edges(false) == Edges{{0, 2}, {1, 2}});
  CHECK(edges(true) == Edges{{0, 1}, {1, 2}});
}

TEST_CASE("A model in place has one region for input and output", "[model][S24]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint32_t>({1}, {.label = "x"});
  PreparedModel prepared =
      test.freeze()
          .fragment(trusted,
                    {.inputs = {x}, .outputs = {x}, .commands = {test.increment(grid(1), x, std::uint32_t{5})}})
          .prepare({.slots = 2});
  check_counts(prepared, 0, 1, 2);
  for (std::uint32_t round = 0; round < 10; ++round) {
    std::optional<ModelSlot> slot = prepared.acquire(in_a_minute());
    slot.value().input(x)[0] = round;
    Inference run = std::move(*slot).submit();
    REQUIRE(run.wait(in_a_minute()));
    CHECK(run.output(x)[0] == round + 5);
  }
}

TEST_CASE("Inputs and outputs that overlap are copied in list order", "[model][S24]") {
  TestSession test;
  const Region memory = test.session.allocate(96, {.label = "m"});
  const TypedRegion<std::uint8_t> low{memory.slice(0, 64), TensorDesc(DType::u8, {64})};
  const TypedRegion<std::uint8_t> high{memory.slice(32, 64), TensorDesc(DType::u8, {64})};
  PreparedModel prepared =
      test.freeze()
          .fragment(trusted,
                    {.inputs = {low, high}, .outputs = {low, high}, .commands = {fill(memory.slice(48, 1), 9)}})
          .prepare();
  std::optional<ModelSlot> slot = prepared.acquire(in_a_minute());
  std::ranges::fill(slot.value().input(low), std::uint8_t{1});
  std::ranges::fill(slot->input(high), std::uint8_t{2});
  Inference run = std::move(*slot).submit();
  REQUIRE(run.wait(in_a_minute()));
  std::vector<std::uint8_t> expected(96, 2);
  std::fill_n(expected.begin(), 32, std::uint8_t{1});
  expected[48] = 9;
  CHECK(std::ranges::equal(run.output(low), std::span(expected).subspan(0, 64)));
  CHECK(std::ranges::equal(run.output(high), std::span(expected).subspan(32, 64)));
}

TEST_CASE("Where the driver refuses memset nodes a fill is a kernel of weft's own", "[model]") {
  const ScopedDevice scoped(test_device(),
                            std::make_shared<LimitsDevice>(open_device(test_device()), [](DeviceLimits& limits) {
                              limits.fill_nodes_on_pool_memory = false;
                            }));
  TestSession test;
  const auto y = test.session.allocate<std::uint8_t>({100000}, {.label = "y"});
  PreparedModel prepared =
      test.freeze()
          .fragment(trusted,
                    {.outputs = {y}, .commands = {fill(y, 3), fill(y.slice(1, 77777), 0xfe), fill(y.slice(4, 1), 8)}})
          .prepare({.slots = 2, .copies = CopyMethod::kernel});
  check_counts(prepared, 0, 0, 4);
  CHECK(count_role(prepared, OwnRole::fill_kernel) == 3);
  std::vector<std::uint8_t> expected(100000, 3);
  std::fill_n(expected.begin() + 1, 77777, std::uint8_t{0xfe});
  expected[4] = 8;
  CHECK(infer(prepared, {}) == expected);
}

TEST_CASE("A launch that needs more shared memory than the default raises the kernel's limit", "[model]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  TestSession test;
  KernelSpec spec = increment_spec();
  spec.dynamic_shared_bytes = counting->limits().default_shared_bytes + 1024;
  const KernelId wide = test.session.load(spec);
  const auto n = test.session.allocate<std::uint32_t>({1}, {.label = "n"});
  PreparedModel prepared = test.freeze()
                               .fragment(trusted, {.inputs = {n},
                                                   .outputs = {n},
                                                   .commands = {dispatch(wide, grid(1), {n, std::uint32_t{2}}),
                                                                test.increment(grid(1), n, std::uint32_t{3})}})
                               .prepare();
  CHECK(counting->count(Verb::raise_dynamic_shared) == 1);
  std::optional<ModelSlot> slot = prepared.try_acquire();
  slot.value().input(n)[0] = 1;
  Inference run = std::move(*slot).submit();
  REQUIRE(run.wait(in_a_minute()));
  CHECK(run.output(n)[0] == 6);
}

TEST_CASE("A slot takes one stream and one event and one arena whatever the number of its regions",
          "[model][B1][T19][arena]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  TestSession test;
  std::vector<Command> commands;
  for (int i = 0; i < 512; ++i) commands.push_back(fill(test.session.allocate(4), 1));
  const ModelFragment fragment = test.freeze().fragment(trusted, {.commands = std::move(commands)});
  counting->reset();
  const PreparedModel prepared = fragment.prepare({.slots = 3});
  CHECK(counting->count(Verb::create_stream) == 3);
  CHECK(counting->count(Verb::create_event) == 3);  // What other streams wait for, one a slot.
  CHECK(counting->count(Verb::allocate) == 3);
  CHECK(counting->count(Verb::allocate_pinned) == 1);  // The words: there is nothing to stage.
  CHECK(test.context.memory().requested.live_bytes == std::uint64_t{3} * 512 * 4);
}

TEST_CASE("Each of many dispatches has scalars of its own", "[model][T49]") {
  constexpr std::uint32_t kDispatches = 2049;
  TestSession test;
  const auto n = test.session.allocate<std::uint32_t>({kDispatches}, {.label = "n"});
  std::vector<Command> commands{fill(n, 0)};
  for (std::uint32_t i = 0; i < kDispatches; ++i)
    commands.push_back(test.increment(grid(1), n.slice(i * sizeof(std::uint32_t), sizeof(std::uint32_t)), i));
  PreparedModel prepared = test.freeze().fragment(trusted, {.outputs = {n}, .commands = std::move(commands)}).prepare();
  check_counts(prepared, 1, kDispatches, 1);
  for (int replay = 0; replay < 2; ++replay) {
    Inference run = std::move(*prepared.acquire(in_a_minute())).submit();
    REQUIRE(run.wait(in_a_minute()));
    bool right = true;
    for (std::uint32_t i = 0; i < kDispatches; ++i) right = run.output(n)[i] == i && right;
    CHECK(right);
  }
}

TEST_CASE("A chain of 30000 dispatches is prepared and runs", "[model][B8][long]") {
  constexpr std::uint32_t kDispatches = 30000;
  TestSession test;
  const auto n = test.session.allocate<std::uint32_t>({1}, {.label = "n"});
  const std::vector<Command> commands(kDispatches, test.increment(grid(1), n, std::uint32_t{1}));
  PreparedModel prepared =
      test.freeze().fragment(trusted, {.inputs = {n}, .outputs = {n}, .commands = commands}).prepare();
  CHECK(prepared.topology().edges.size() == kDispatches + 1);
  std::optional<ModelSlot> slot = prepared.try_acquire();
  slot.value().input(n)[0] = 12;
  Inference run = std::move(*slot).submit();
  REQUIRE(run.wait(in_a_minute()));
  CHECK(run.output(n)[0] == kDispatches + 12);
}

TEST_CASE("A graph without commands is refused", "[model][S45]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount});
  const ModelFragment fragment =
      test.freeze().fragment(trusted, {.inputs = {x}, .outputs = {x}, .commands = {}, .label = "idle"});
  const MemoryStatistics before = test.context.memory();
  const Error error = refusal([&] { static_cast<void>(fragment.prepare({.slots = 2})); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The graph \"idle\" has no commands.");
  CHECK(error.contexts().empty());
  CHECK(test.context.memory() == before);
}

TEST_CASE("No slots are refused before anything is allocated", "[model][S44]") {
  const XorModel model(kCount);
  const MemoryStatistics before = model.fragment.context().memory();
  const Error error = refusal([&] { static_cast<void>(model.fragment.prepare({.slots = 0})); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "A prepared model has at least 1 slot; 0 are asked for.");
  CHECK(model.fragment.context().memory() == before);
}

TEST_CASE("The nodes of a slot beyond the pool are refused", "[model]") {
  const XorModel model(kCount);
  const PreparedModel prepared = model.fragment.prepare({.slots = 2});
  CHECK(refusal([&] { static_cast<void>(prepared.node_counts(2)); }).sentence() ==
        "There is no slot 2; the pool has 2.");
}

TEST_CASE("More slots than the device has memory for are refused before they are made", "[model][S49]") {
  const XorModel model(kCount);
  const MemoryStatistics before = model.fragment.context().memory();
  const Error error = refusal([&] { static_cast<void>(model.fragment.prepare({.slots = 0xffffffffu})); });
  CHECK(error.code() == ErrorCode::out_of_memory);
  CHECK(contains(error.sentence(), "4294967295 slots of 1024 bytes each are more than the "));
  CHECK(model.fragment.context().memory() == before);
}

TEST_CASE("An empty factory is refused", "[model]") {
  const Context context = Context::open(test_device());
  const Error error = refusal([&] { static_cast<void>(PreparedModel::prepare(context, nullptr)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The factory of a prepared model is empty.");
}

}  // namespace weft::test
