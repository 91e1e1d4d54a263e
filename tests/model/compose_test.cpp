#include "catch.h"
#include "device/faults.h"
#include "device/registry.h"
#include "graph_state.h"
#include "support/device.h"
#include "support/model_state.h"
#include "support/requests.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Graphs that are put together by hand: of fragments over tensors in memory, and of commands of their own.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

/// y = x ^ mask.
struct Step {
  explicit Step(const Context& context) : Step(TestSession(context)) {}
  explicit Step(TestSession loaded)
      : test(std::move(loaded)),
        x(test.session.allocate<std::uint8_t>({kCount}, {.label = "x"})),
        y(test.session.allocate<std::uint8_t>({kCount}, {.label = "y"})),
        model(test.freeze()) {}
  [[nodiscard]] ModelFragment fragment(std::uint8_t mask) const {
    return model.fragment(
        trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, y, mask).label("xor")}, .label = "step"});
  }
  /// x = x ^ mask, in place.
  [[nodiscard]] ModelFragment in_place(std::uint8_t mask) const {
    return model.fragment(trusted,
                          {.inputs = {x}, .outputs = {x}, .commands = {test.xor_of(x, x, mask)}, .label = "in place"});
  }

  TestSession test;
  TypedRegion<std::uint8_t> x;
  TypedRegion<std::uint8_t> y;
  ModelDefinition model;
};

/// Checks that `call` is refused as `invalid` and leaves the graph as it was.
template <class Call>
void check_refused(const Graph& graph, Call&& call, const std::string& sentence) {
  INFO(sentence);
  const Error error =
      check_refusal_changes_nothing([&] { return ModelState(graph.context(), graph); }, std::forward<Call>(call));
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == sentence);
}

PreparedModel prepare(const Context& context, const std::function<InferenceGraph(Context&)>& factory,
                      PrepareOptions options = {}) {
  return PreparedModel::prepare(context, factory, std::move(options));
}

}  // namespace

TEST_CASE("A chain of fragments over tensors in memory reads the one and writes the other", "[model][S58][S72][B13]") {
  for (const Placement placement : {Placement::device, Placement::shared}) {
    const Step step(Context::open(test_device()));
    const Context context = step.test.context;
    const Buffer buffer = context.allocate(3 * 256, {.label = "memory", .placement = placement});
    const DeviceTensor source = buffer.tensor(bytes_desc(kCount), 256);
    const DeviceTensor target = buffer.tensor(bytes_desc(kCount), 512);
    const std::uint64_t requested = context.memory().requested.live_bytes;
    PreparedModel pool = prepare(context, [&](Context& home) {
      Graph graph(home, "chain");
      std::vector<DeviceTensor> tensors{source};
      for (std::uint8_t i = 1; i <= 12; ++i) tensors = step.fragment(i).record(graph, tensors);
      graph.copy(tensors[0], graph.bind(target));
      return InferenceGraph{std::move(graph), {}, {}};
    });
    CHECK(context.memory().requested.live_bytes - requested == 12 * kCount);  // None for the input.
    CHECK(pool.node_counts().kernel_nodes == 12);
    CHECK(pool.node_counts().own_nodes == 2);
    for (std::uint32_t round = 0; round < 3; ++round) {
      const std::vector<std::uint8_t> input = fresh_bytes(kCount, round);
      static_cast<void>(upload(context, input).copy_into(source));
      Inference run = submit(pool, {});
      CHECK(values(target) == xored(input, 12));  // 1 ^ 2 ^ ... ^ 12.
      CHECK(values(source) == input);
    }
  }
}

TEST_CASE("An in-place fragment over a tensor in memory changes the caller's bytes and no others",
          "[model][S24][S65]") {
  const Step step(Context::open(test_device()));
  const Context context = step.test.context;
  const std::vector<std::uint8_t> bytes = fresh_bytes(3 * kCount, 1);
  const DeviceTensor memory = upload(context, bytes, "m");
  const DeviceTensor part = memory.view(bytes_desc(kCount), kCount);
  PreparedModel pool = prepare(context, [&](Context& home) {
    Graph graph(home);
    std::vector<DeviceTensor> tensors{part};
    for (std::uint8_t i = 0; i < 3; ++i)
      tensors = step.in_place(static_cast<std::uint8_t>(1u << i)).record(graph, tensors);
    return InferenceGraph{std::move(graph), {}, std::move(tensors)};
  });
  std::vector<std::uint8_t> expected = bytes;
  for (int round = 0; round < 3; ++round) {
    for (std::uint64_t i = 0; i < kCount; ++i) expected[kCount + i] ^= 7;
    Inference run = submit(pool, {});
    CHECK(result(run) == std::vector<std::uint8_t>(expected.begin() + kCount, expected.begin() + 2 * kCount));
    CHECK(values(memory) == expected);
  }
}

TEST_CASE("Slices of one buffer feed several allocations where they are apart", "[model][S56][S57]") {
  const Context context = Context::open(test_device());
  TestSession test(context);
  const auto a = test.session.allocate<std::uint8_t>({kCount}, {.label = "a"});
  const auto b = test.session.allocate<std::uint8_t>({kCount}, {.label = "b"});
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  const auto whole = test.session.allocate<std::uint8_t>({2 * kCount}, {.label = "whole"});
  const ModelDefinition model = test.freeze();
  const ModelFragment two =
      model.fragment(trusted, {.inputs = {a, b},
                               .outputs = {y},
                               .commands = {test.xor_of(a, y, 1), test.xor_of(b.slice(0, 8), y.slice(0, 8), 2)}});
  const TypedRegion<std::uint8_t> low{whole.slice(0, kCount), bytes_desc(kCount)};
  const TypedRegion<std::uint8_t> high{whole.slice(kCount, kCount), bytes_desc(kCount)};
  const ModelFragment split =
      model.fragment(trusted, {.inputs = {low, high}, .outputs = {y}, .commands = {test.xor_of(low, y, 1)}});
  const std::vector<std::uint8_t> bytes = fresh_bytes(2 * kCount, 1);
  const DeviceTensor memory = ready(context, bytes);
  const DeviceTensor first = memory.view(bytes_desc(kCount));
  const DeviceTensor second = memory.view(bytes_desc(kCount), kCount);

  PreparedModel pool = prepare(context, [&](Context& home) {
    Graph graph(home);
    check_refused(
        graph,
        [&] {
          static_cast<void>(split.record(graph, {first, second}));
        },
        "Two inputs of allocation \"whole\" are given different tensors.");
    check_refused(
        graph,
        [&] {
          static_cast<void>(two.record(graph, {first, memory.view(bytes_desc(kCount), kCount - 1)}));
        },
        "The tensor overlaps the one bound to allocation \"a\"; the fragment's order was inferred for distinct "
        "memory.");
    check_refused(
        graph,
        [&] {
          static_cast<void>(two.record(graph, {first, first}));
        },
        "The tensor overlaps the one bound to allocation \"a\"; the fragment's order was inferred for distinct "
        "memory.");
    const DeviceTensor bound = graph.bind(second);
    check_refused(
        graph,
        [&] {
          static_cast<void>(two.record(graph, {second, bound}));
        },
        "The tensor overlaps the one bound to allocation \"a\"; the fragment's order was inferred for distinct "
        "memory.");
    std::vector<DeviceTensor> outputs = two.record(graph, {first, second});
    return InferenceGraph{std::move(graph), {}, std::move(outputs)};
  });
  std::vector<std::uint8_t> expected = xored({bytes.begin(), bytes.begin() + kCount}, 1);
  for (std::size_t i = 0; i < 8; ++i) expected[i] = static_cast<std::uint8_t>(bytes[kCount + i] ^ 2);
  CHECK(infer(pool, {}) == expected);
}

TEST_CASE("A tensor over an input in memory keeps its offset out of reach", "[model][S60]") {
  const Context context = Context::open(test_device());
  TestSession test(context);
  const Region m = test.session.allocate(3 * kCount, {.label = "m"});
  const TypedRegion<std::uint8_t> middle{m.slice(kCount, kCount), bytes_desc(kCount)};
  const ModelDefinition model = test.freeze();
  const auto over = [&](const Region& region) {
    return model.fragment(trusted, {.inputs = {middle}, .commands = {fill(region, 1)}});
  };
  const DeviceTensor memory = ready(context, fresh_bytes(3 * kCount, 1));
  Graph graph(context);
  check_refused(
      graph,
      [&] { static_cast<void>(over(m.slice(kCount - 1, 2)).record(graph, {memory.view(bytes_desc(kCount), kCount)})); },
      "The access at byte 63 of allocation \"m\" precedes the input bound at byte 64.");
  check_refused(
      graph,
      [&] {
        static_cast<void>(over(m.slice(2 * kCount - 1, 2)).record(graph, {memory.view(bytes_desc(kCount), kCount)}));
      },
      "The access to 2 bytes at byte 127 of allocation \"m\" passes the 64 bytes bound at byte 64.");
  // What the caller's memory has around the tensor is no part of it.
  PreparedModel pool = prepare(context, [&](Context& home) {
    Graph good(home);
    static_cast<void>(over(m.slice(kCount + 5, 3)).record(good, {memory.view(bytes_desc(kCount), 10)}));
    return InferenceGraph{std::move(good), {}, {}};
  });
  REQUIRE(submit(pool, {}).wait(in_a_minute()));
  std::vector<std::uint8_t> expected = fresh_bytes(3 * kCount, 1);
  std::fill_n(expected.begin() + 15, 3, std::uint8_t{1});
  CHECK(values(memory) == expected);
}

TEST_CASE("Recording waits for a tensor's producer and asks nothing else of the device", "[model][S55][S64]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  const Context context = Context::open(test_device());
  TestSession test(context);
  const auto x = test.session.allocate<std::uint32_t>({kCount}, {.label = "x"});
  const auto y = test.session.allocate<std::uint32_t>({kCount}, {.label = "y"});
  const ModelFragment slow = test.freeze().fragment(
      trusted, {.inputs = {x},
                .outputs = {y},
                .commands = {test.slow_copy(workload(kCount), x, y, std::uint64_t{kCount}, std::uint64_t{20000000})}});
  PreparedModel pool = slow.prepare({.forms = {kHostDevice}});
  Inference run = pool.try_acquire().value().submit();
  const DeviceTensor output = run.tensor(0);
  Graph graph(context);
  const std::uint64_t launches = counting->count(Verb::launch);
  static_cast<void>(slow.record(graph, {output}));
  CHECK(output.completion().is_done());
  CHECK(counting->count(Verb::launch) == launches);
}

TEST_CASE("A graph's own commands run in the order of their bytes", "[model][R6][R9]") {
  const Step step(Context::open(test_device()));
  const Context context = step.test.context;
  PreparedModel pool =
      prepare(context,
              [&](Context& home) {
                Graph graph(home, "by hand");
                const DeviceTensor x = graph.tensor<std::uint8_t>({kCount}, {.label = "in"});
                const DeviceTensor a = graph.tensor<std::uint8_t>({kCount}, {.label = "a"});
                const DeviceTensor b = graph.tensor<std::uint8_t>({kCount + 8}, {.label = "b"});
                graph.fill(b, 0x5a);
                graph.copy(x, a);
                graph.dispatch(step.model,
                               step.test.xor_of(a.region(), b.view(bytes_desc(kCount), 8).region(), 0x0f).label("mix"));
                graph.fill(a.view(bytes_desc(4), 2), 9);
                graph.copy(a.view(bytes_desc(8)), b.view(bytes_desc(8)));
                graph.copy(b, b);  // Adds nothing.
                return InferenceGraph{std::move(graph), {x}, {b}};
              },
              {.slots = 2});
  CHECK(pool.topology().nodes.size() == 5 + 2);
  CHECK(pool.node_counts().memset_nodes == 2);
  CHECK(pool.node_counts().kernel_nodes == 1);
  CHECK(pool.node_counts().own_nodes == 4);
  for (std::uint32_t round = 0; round < 8; ++round) {
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, round);
    std::vector<std::uint8_t> expected{input[0], input[1], 9, 9, 9, 9, input[6], input[7]};
    std::ranges::copy(xored(input, 0x0f), std::back_inserter(expected));
    CHECK(infer(pool, input) == expected);
  }
}

TEST_CASE("A graph's copy of more than the copy kernel's bytes takes an engine", "[model][R6]") {
  const Context context = Context::open(test_device());
  PreparedModel pool = prepare(context, [&](Context& home) {
    Graph graph(home);
    const TensorDesc desc = bytes_desc(kCopyKernelBytes + 3);
    const DeviceTensor a = graph.tensor(desc, {.label = "a"});
    const DeviceTensor b = graph.tensor(desc, {.label = "b"});
    graph.fill(a, 0x77);
    graph.copy(a, b);
    return InferenceGraph{std::move(graph), {}, {b}};
  });
  CHECK(std::holds_alternative<CopyDetail>(pool.topology().nodes[1].detail));
  CHECK(pool.topology().nodes[1].role == OwnRole::copy);
  Inference run = submit(pool, {});
  REQUIRE(run.wait(in_a_minute()));
  CHECK(std::ranges::count(run.output<std::uint8_t>(0), 0x77) == kCopyKernelBytes + 3);
}

TEST_CASE("A graph's fills and copies are held against its own tensors", "[model][R6][S63][case16]") {
  const Context context = Context::open(test_device());
  Graph graph(context, "g");
  Graph other(context, "other");
  const DeviceTensor a = graph.tensor(bytes_desc(kCount), {.label = "a"});
  const DeviceTensor foreign = other.tensor(bytes_desc(kCount));
  const DeviceTensor memory = context.tensor(bytes_desc(kCount));
  constexpr const char* kFill = "The target of the fill belongs to another graph.";
  check_refused(
      graph, [&] { graph.fill(foreign, 1); }, kFill);
  check_refused(
      graph, [&] { graph.fill(memory, 1); },
      "The target of the fill is a tensor in memory; Graph::bind makes it one of the graph.");
  check_refused(
      graph, [&] { graph.copy(foreign, a); }, "The source of the copy belongs to another graph.");
  check_refused(
      graph, [&] { graph.copy(a, foreign); }, "The destination of the copy belongs to another graph.");
  check_refused(
      graph, [&] { graph.copy(a, memory); },
      "The destination of the copy is a tensor in memory; Graph::bind makes it one of the graph.");
  check_refused(
      graph, [&] { graph.copy(a, a.view(bytes_desc(8))); },
      "The copy's source u8[64] has 64 bytes and its destination u8[8] has 8.");
  check_refused(
      graph, [&] { graph.copy(a.view(bytes_desc(32)), a.view(bytes_desc(32), 16)); },
      "The copy's source, bytes 0 to 32 of allocation \"a\", overlaps its destination, bytes 16 to 48.");
  // Neither steps over what lies between the elements, nor changes their type.
  const DeviceTensor columns = a.view(TensorDesc(DType::u8, {2, 2}, Strides{4, 1}));
  check_refused(
      graph, [&] { graph.fill(columns, 1); }, "The target of the fill is not contiguous: u8[2,2] strides [4,1].");
  check_refused(
      graph, [&] { graph.copy(columns, a.view(bytes_desc(6), 32)); },
      "The source of the copy is not contiguous: u8[2,2] strides [4,1].");
  check_refused(
      graph, [&] { graph.copy(a.view(bytes_desc(6), 32), columns); },
      "The destination of the copy is not contiguous: u8[2,2] strides [4,1].");
  check_refused(
      graph, [&] { graph.copy(a.view(bytes_desc(16)), a.view(TensorDesc(DType::f32, {4}), 32)); },
      "The copy's source is u8[16] and its destination f32[4]; they have one element type.");
  CHECK(GraphAccess::state(graph).operations.empty());
  graph.copy(a.view(bytes_desc(32)), a.view(bytes_desc(32), 32));
  CHECK(GraphAccess::state(graph).operations.size() == 1);
}

TEST_CASE("A tensor that is moved from stays one", "[model]") {
  const Context context = Context::open(test_device());
  const std::vector<std::uint8_t> bytes = fresh_bytes(kCount, 1);
  DeviceTensor tensor = upload(context, bytes, "t");
  const DeviceTensor moved = std::move(tensor);
  CHECK(values(moved) == bytes);
  CHECK(values(tensor) == bytes);  // NOLINT(bugprone-use-after-move)
  TensorDesc desc(DType::f32, {2, 3});
  const TensorDesc taken = std::move(desc);
  CHECK(desc == taken);  // NOLINT(bugprone-use-after-move)
}

TEST_CASE("A graph's commands refuse tensors without bytes", "[model][S26][R36][B19][case14]") {
  const Context context = Context::open(test_device());
  Graph graph(context, "g");
  const DeviceTensor a = graph.tensor(bytes_desc(kCount), {.label = "a"});
  const DeviceTensor none = a.view(bytes_desc(0), 4);
  check_refused(
      graph, [&] { graph.fill(none, 1); }, "The target of the fill is empty: u8[0].");
  check_refused(
      graph, [&] { graph.copy(none, a.view(bytes_desc(0), 8)); }, "The source of the copy is empty: u8[0].");
  const auto check_placed = [&](bool is_input, const std::string& where) {
    const Error error = refusal([&] {
      static_cast<void>(prepare(context, [&](Context& home) {
        Graph filled(home);
        const DeviceTensor y = filled.tensor(bytes_desc(kCount), {.label = "y"});
        filled.fill(y, 1);
        std::vector<DeviceTensor> empty{y.view(bytes_desc(0), 1)};
        return is_input ? InferenceGraph{std::move(filled), std::move(empty), {y}}
                        : InferenceGraph{std::move(filled), {}, std::move(empty)};
      }));
    });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == "The tensor is empty: u8[0].");
    CHECK(error.contexts() == std::vector<std::string>{where, "preparing slot 0 of 1"});
  };
  check_placed(true, "placing inputs[0]");
  check_placed(false, "placing outputs[0]");
}

TEST_CASE("A dispatch over views that overlap is refused where one is written", "[model][R6][R7][T35]") {
  const Step step(Context::open(test_device()));
  const Context context = step.test.context;
  Graph graph(context, "g");
  const DeviceTensor a = graph.tensor(bytes_desc(256), {.label = "a"});
  const auto part = [&](std::uint64_t from, std::uint64_t bytes) { return a.view(bytes_desc(bytes), from).region(); };
  const Command overlapping = step.test.xor_of(part(0, 128), part(64, 128), 1);
  check_refused(
      graph, [&] { graph.dispatch(step.model, overlapping); },
      "Two arguments overlap in allocation \"a\": bytes 0 to 128 (read) and bytes 64 to 192 (write). "
      "Graph::dispatch_aliasing is for kernels that are safe to run so.");
  CHECK(refusal([&] { static_cast<void>(a.view(bytes_desc(128), 192)); }).code() == ErrorCode::invalid);
  graph.dispatch(step.model, step.test.xor_of(part(0, 128), part(128, 128), 1));
  graph.dispatch_aliasing(trusted, step.model, overlapping);
  CHECK(GraphAccess::state(graph).operations.size() == 2);

  // Alignment is that of the storage and the offset in it.
  const DeviceTensor misplaced = a.view(bytes_desc(8), 6);
  const auto count = [&](const DeviceTensor& at) {
    return dispatch(step.test.increment, grid(1), {at.region(), std::uint32_t{1}});
  };
  const Error error = check_refusal_changes_nothing([&] { return ModelState(context, graph); },
                                                    [&] { graph.dispatch(step.model, count(misplaced)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.sentence(), "4"));
  graph.dispatch(step.model, count(a.view(bytes_desc(8), 8)));
}

TEST_CASE("A graph's dispatch is one of its own context and its own operations", "[model][R6][T47]") {
  const Step step(Context::open(test_device()));
  const Context context = step.test.context;
  const Step elsewhere(Context::open(test_device()));
  Graph graph(context, "g");
  Graph other(context, "other");
  const DeviceTensor a = graph.tensor(bytes_desc(kCount), {.label = "a"});
  const DeviceTensor b = graph.tensor(bytes_desc(kCount), {.label = "b"});
  const DeviceTensor foreign = other.tensor(bytes_desc(kCount));
  const auto refuse = [&](const ModelDefinition& model, const Command& command, const std::string& part) {
    const Error error = check_refusal_changes_nothing([&] { return ModelState(context, graph); },
                                                      [&] { graph.dispatch(model, command); });
    CHECK(error.code() == ErrorCode::invalid);
    INFO(error.sentence());
    CHECK(contains(error.sentence(), part));
  };
  refuse(step.model, fill(a.region(), 1), "The command is a fill; Graph::fill adds one.");
  refuse(elsewhere.model, elsewhere.test.xor_of(a.region(), b.region(), 1),
         "The kernel's definition belongs to another context than the graph.");
  refuse(step.model, step.test.xor_of(a.region(), foreign.region(), 1), "graph");
  refuse(step.model, step.test.xor_of(step.x, a.region(), 1), "graph");
  refuse(step.model, step.test.xor_of(a.region(), b.region(), 1).after({0}), "0");
  graph.fill(a, 1);
  refuse(step.model, step.test.xor_of(a.region(), b.region(), 1).after({1}), "1");
}

TEST_CASE("A fork and its join run both branches and count a repeated dependency once", "[model][R9][T47]") {
  const Step step(Context::open(test_device()));
  PreparedModel pool = prepare(step.test.context, [&](Context& home) {
    Graph graph(home, "fork");
    const DeviceTensor x = graph.tensor(bytes_desc(kCount), {.label = "x"});
    const DeviceTensor l = graph.tensor(bytes_desc(kCount), {.label = "l"});
    const DeviceTensor r = graph.tensor(bytes_desc(kCount), {.label = "r"});
    const DeviceTensor y = graph.tensor(bytes_desc(kCount), {.label = "y"});
    graph.dispatch(step.model, step.test.xor_of(x.region(), l.region(), 1));
    graph.dispatch(step.model, step.test.xor_of(x.region(), r.region(), 2));
    graph.dispatch(step.model, step.test.xor_of(l.region(), y.region(), 4).after({0, 0, 1, 1, 0}));
    graph.dispatch(step.model, step.test.xor_of(r.view(bytes_desc(8)).region(), y.view(bytes_desc(8)).region(), 8));
    return InferenceGraph{std::move(graph), {x}, {y}};
  });
  // Copy in, the fork, the join: 1 + 2 nodes, and an edge once each.
  const auto into = [&](std::uint32_t node) {
    return std::ranges::count(pool.topology().edges, node, &TopologyEdge::to);
  };
  CHECK(into(1) == 1);
  CHECK(into(2) == 1);
  CHECK(into(3) == 2);
  CHECK(into(4) == 1);
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  std::vector<std::uint8_t> expected = xored(input, 5);
  for (std::size_t i = 0; i < 8; ++i) expected[i] = static_cast<std::uint8_t>(input[i] ^ 10);
  CHECK(infer(pool, input) == expected);
}

TEST_CASE("Binding a tensor gives the graph its memory once", "[model][R6][S72]") {
  const Context context = Context::open(test_device());
  const Context elsewhere = Context::open(test_device());
  Graph graph(context, "g");
  const DeviceTensor own = graph.tensor(bytes_desc(8), {.label = "own"});
  std::optional<Buffer> buffer = context.allocate(kCount, {.label = "b"});
  check_refused(
      graph, [&] { static_cast<void>(graph.bind(own)); }, "The tensor is of a graph already.");
  check_refused(
      graph, [&] { static_cast<void>(graph.bind(context.tensor(bytes_desc(0)))); }, "The tensor u8[0] is empty.");
  const DeviceTensor foreign = elsewhere.tensor(bytes_desc(8));
  check_refused(
      graph, [&] { static_cast<void>(graph.bind(foreign)); }, "The tensor belongs to another context.");
  const DeviceTensor low = graph.bind(buffer->tensor(bytes_desc(8)));
  const DeviceTensor high = graph.bind(buffer->tensor(bytes_desc(8), 8));
  CHECK(GraphAccess::state(graph).allocations.size() == 2);
  graph.fill(low, 1);
  graph.fill(high, 2);
  buffer.reset();
  PreparedModel pool = prepare(context, [&](Context&) { return InferenceGraph{std::move(graph), {}, {low, high}}; });
  CHECK(context.memory().requested.live_bytes == kCount + 8);
  Inference run = submit(pool, {});
  REQUIRE(run.wait(in_a_minute()));
  CHECK(std::ranges::count(run.output<std::uint8_t>(0), 1) == 8);
  CHECK(std::ranges::count(run.output<std::uint8_t>(1), 2) == 8);
}

TEST_CASE("Memory outside a slot is staged for the host and copied for the device", "[model][S46][R24][R25]") {
  const Step step(Context::open(test_device()));
  const Context context = step.test.context;
  for (const Placement placement : {Placement::device, Placement::shared}) {
    const Buffer buffer = context.allocate(2 * kCount, {.label = "io", .placement = placement});
    const DeviceTensor input = buffer.tensor(bytes_desc(kCount));
    const DeviceTensor output = buffer.tensor(bytes_desc(kCount), kCount);
    PreparedModel pool = prepare(context,
                                 [&](Context& home) {
                                   Graph graph(home);
                                   graph.copy(step.fragment(0x3c).record(graph, {input})[0], graph.bind(output));
                                   return InferenceGraph{std::move(graph), {input}, {output}};
                                 },
                                 {.forms = all_forms()});
    for (const RequestForm form : all_forms()) {
      const std::vector<std::uint8_t> bytes = fresh_bytes(kCount, 1 + static_cast<unsigned>(form.outputs));
      Inference run = start(pool, form, bytes);
      CHECK(answer(run, form) == xored(bytes, 0x3c));
      CHECK(values(input) == bytes);
      CHECK(values(output) == xored(bytes, 0x3c));
    }
    // The very bytes as input and output: nothing to copy.
    static_cast<void>(upload(context, fresh_bytes(kCount, 9)).copy_into(input));
    {
      Inference run = pool.acquire(in_a_minute()).value().submit({input}, {.into = {output}});
      CHECK(values(run.tensor(0)) == xored(fresh_bytes(kCount, 9), 0x3c));
    }
    // A part of what the run uses is refused.
    const Error error = refusal(
        [&] { static_cast<void>(pool.acquire(in_a_minute()).value().submit({buffer.tensor(bytes_desc(kCount), 1)})); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(contains(error.sentence(), "The tensor is the bytes 1 to 65 of \"io\", of which the same run writes"));
  }
}

TEST_CASE("A recording runs nothing and holds what it binds until it goes", "[model][S64][T50]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  const Step step(Context::open(test_device()));
  const Context context = step.test.context;
  const std::uint64_t before = context.memory().requested.live_bytes;
  std::optional<Graph> graph(context);
  {
    const DeviceTensor memory = ready(context, fresh_bytes(kCount, 1));
    const std::uint64_t launches = counting->count(Verb::launch);
    const std::vector<DeviceTensor> outputs = step.fragment(1).record(*graph, {memory});
    static_cast<void>(step.fragment(2).record(*graph, outputs));
    CHECK(counting->count(Verb::launch) == launches);
    CHECK(counting->count(Verb::create_graph) == 1);  // Of the context's copies.
  }
  // The tensor that was bound, and not what the graph gets of its own when it is prepared.
  CHECK(context.memory().requested.live_bytes == before + kCount);
  graph.reset();
  CHECK(eventually([&] { return context.memory().requested.live_bytes == before; }));
}

TEST_CASE("A producer that did not complete refuses the recording and harms nothing else", "[model][S55][S63][S73]") {
  /// Says that it launches and does not, once.
  class ForgetfulDevice final : public DeviceDecorator {
   public:
    using DeviceDecorator::DeviceDecorator;
    DeviceStatus launch(ExecutableHandle executable, StreamHandle stream) noexcept override {
      return std::exchange(forgets, false) ? DeviceStatus{} : DeviceDecorator::launch(executable, stream);
    }
    bool forgets = false;
  };
  const auto device = std::make_shared<ForgetfulDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  const Step step(Context::open(test_device()));
  const Context context = step.test.context;
  PreparedModel producer =
      step.fragment(1).prepare({.slots = 2, .forms = {kHostDevice}, .spin = std::chrono::nanoseconds(0)});
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  const DeviceTensor good = start(producer, kHostDevice, input).tensor(0);
  device->forgets = true;
  const DeviceTensor bad = start(producer, kHostDevice, input).tensor(0);
  PreparedModel pool = prepare(context, [&](Context& home) {
    Graph graph(home, "g");
    const auto check_internal = [&](const auto& call) {
      const Error error = check_refusal_changes_nothing([&] { return ModelState(context, graph); }, call);
      CHECK(error.code() == ErrorCode::internal);
      CHECK(error.sentence() == "The stream drained, but its run 1 did not report completion.");
    };
    check_internal([&] { static_cast<void>(step.fragment(2).record(graph, {bad})); });
    check_internal([&] { static_cast<void>(graph.bind(bad)); });
    std::vector<DeviceTensor> outputs = step.fragment(2).record(graph, {good});
    return InferenceGraph{std::move(graph), {}, std::move(outputs)};
  });
  CHECK(infer(pool, {}) == xored(input, 3));
}

TEST_CASE("A pool dropped in the middle of a long chain leaves later work unharmed", "[model][B11][T46]") {
  const Context context = Context::open(test_device());
  const Step step(context);
  for (int round = 0; round < 5; ++round) {
    const DeviceTensor counter = context.tensor({DType::u32, {1}});
    TestSession test(context);
    const auto n = test.session.allocate<std::uint32_t>({1}, {.label = "n"});
    const ModelFragment chain = test.freeze().fragment(
        trusted, {.inputs = {n}, .commands = std::vector<Command>(500, test.increment(grid(1), n, std::uint32_t{1}))});
    {
      PreparedModel pool = prepare(context, [&](Context& home) {
        Graph graph(home);
        static_cast<void>(chain.record(graph, {counter}));
        return InferenceGraph{std::move(graph), {}, {}};
      });
      static_cast<void>(submit(pool, {}));
    }
    PreparedModel other = step.fragment(0x77).prepare();
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
    CHECK(infer(other, input) == xored(input, 0x77));
    CHECK(values(counter) == std::vector<std::uint8_t>{500 % 256, 500 / 256, 0, 0});
  }
}

}  // namespace weft::test
