#include "catch.h"
#include "context_state.h"
#include "device/faults.h"
#include "device/registry.h"
#include "device_tensor_access.h"
#include "graph_state.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include "support/model_state.h"
#include "tracked_memory.h"
#include "weight.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;
const TensorDesc kBytes(DType::u8, {kCount});

/// y = x ^ mask, by way of a filled region, so that a recording brings a fill too.
ModelFragment stage(const Context& context, std::uint8_t mask, const std::string& label) {
  TestSession test(context);
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = label + ".x"});
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = label + ".y"});
  const auto h = test.session.allocate<std::uint8_t>({8}, {.label = label + ".h"});
  return test.freeze().fragment(trusted, {.inputs = {x},
                                          .outputs = {y},
                                          .commands = {test.xor_of(x, y, mask).label(label), fill(h, 1),
                                                       test.xor_of(h, y.slice(0, 8), 0).after({0}),
                                                       test.xor_of(x.slice(0, 8), y.slice(0, 8), mask)},
                                          .label = label});
}

/// A fragment whose inputs and outputs stand in shared allocations, to be refused in every way.
struct RecordRefusals {
  TestSession test;
  Region low = test.session.allocate(kCount, {.label = "low"});
  Region high = test.session.allocate(kCount, {.label = "high"});
  TypedRegion<std::uint8_t> y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  TypedRegion<std::uint32_t> n = test.session.allocate<std::uint32_t>({4}, {.label = "n"});
  KernelId by_value = test.session.load([] {
    KernelSpec spec = increment_spec();
    spec.parameters[0].kind = ParameterKind::bytes;
    return spec;
  }());
  ModelDefinition model = test.freeze();
  ModelFragment good = stage(test.context, 3, "good");

  [[nodiscard]] TensorRegion part(const Region& region, std::uint64_t from, std::uint64_t bytes) const {
    return {region.slice(from, bytes), TensorDesc(DType::u8, {bytes})};
  }

  using Tensors = std::function<std::vector<DeviceTensor>(Graph&, const DeviceTensor&)>;

  /// Checks that recording `bad` with these tensors of a graph is refused and leaves the graph as it was, and that the
  /// graph then takes a fragment and runs.
  void refuse(const ModelFragment& bad, const Tensors& tensors, const std::string& sentence,
              const std::vector<std::string>& contexts) const {
    PreparedModel prepared = PreparedModel::prepare(test.context, [&](Context& home) {
      Graph graph(home, "refused");
      const DeviceTensor x = graph.tensor(kBytes, {.label = "x"});
      const std::vector<DeviceTensor> given = tensors(graph, x);
      const Error error = check_refusal_changes_nothing([&] { return ModelState(home, graph); },
                                                        [&] { static_cast<void>(bad.record(graph, given)); });
      CHECK(error.code() == ErrorCode::invalid);
      CHECK(error.sentence() == sentence);
      CHECK(error.contexts() == contexts);
      std::vector<DeviceTensor> outputs = good.record(graph, {x});
      return InferenceGraph{std::move(graph), {x}, std::move(outputs)};
    });
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
    CHECK(infer(prepared, input) == xored(input, 3));
  }
  void refuse(FragmentOptions options, const Tensors& tensors, const std::string& sentence,
              const std::vector<std::string>& contexts) const {
    refuse(model.fragment(trusted, std::move(options)), tensors, sentence, contexts);
  }
};

std::vector<DeviceTensor> just(Graph&, const DeviceTensor& x) { return {x}; }

/// A tensor of kBytes in memory at this address, for calls that refuse it before they use it.
DeviceTensor tensor_at(const Context& context, DeviceAddress address) {
  auto memory =
      std::make_shared<TrackedMemory>(*ContextAccess::state(context), "elsewhere", address, nullptr, kBytes.bytes());
  return DeviceTensorAccess::in_memory(kBytes, std::move(memory), 0, Completion());
}

}  // namespace

TEST_CASE("Two fragments joined in one graph take one launch a request and no copy between them", "[model][T4]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  const Context context = Context::open(test_device());
  const ModelFragment first = stage(context, 0x0f, "first");
  const ModelFragment second = stage(context, 0xf0, "second");
  PreparedModel prepared = PreparedModel::prepare(context,
                                                  [&](Context& home) {
                                                    Graph graph(home, "joined");
                                                    const DeviceTensor x =
                                                        graph.tensor<std::uint8_t>({kCount}, {.label = "images"});
                                                    const std::vector<DeviceTensor> hidden = first.record(graph, {x});
                                                    std::vector<DeviceTensor> outputs = second.record(graph, hidden);
                                                    return InferenceGraph{std::move(graph), {x}, std::move(outputs)};
                                                  },
                                                  {.slots = 2});
  const NodeCounts counts = prepared.node_counts();
  CHECK(counts.memset_nodes == 2);
  CHECK(counts.kernel_nodes == 6);
  CHECK(counts.own_nodes == 2);
  CHECK(prepared.topology().count(NodeKind::own) == 2);

  counting->reset();
  for (std::uint32_t round = 0; round < 20; ++round) {
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, round);
    CHECK(infer(prepared, input) == xored(input, 0xff));
  }
  CHECK(counting->count(Verb::launch) == 20);
  CHECK(counting->count(Verb::copy) == 0);
  CHECK(counting->count(Verb::fill) == 0);
}

TEST_CASE("A fragment recorded twice has storage of its own each time", "[model]") {
  const Context context = Context::open(test_device());
  const ModelFragment fragment = stage(context, 0x0f, "twice");
  PreparedModel prepared = PreparedModel::prepare(context, [&](Context& home) {
    Graph graph(home);
    const DeviceTensor x = graph.tensor<std::uint8_t>({kCount});
    const DeviceTensor once = fragment.record(graph, {x}).at(0);
    const DeviceTensor twice = fragment.record(graph, {once}).at(0);
    return InferenceGraph{std::move(graph), {x}, {once, twice}};
  });
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  Inference run = submit(prepared, input);
  REQUIRE(run.wait(in_a_minute()));
  CHECK(std::ranges::equal(run.output<std::uint8_t>(0), xored(input, 0x0f)));
  CHECK(std::ranges::equal(run.output<std::uint8_t>(1), input));
}

TEST_CASE("A weight that two recordings read is one allocation of the graph", "[model]") {
  TestSession test;
  const auto w = test.weight(fresh_bytes(kCount, 1));
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  const ModelFragment fragment = test.freeze().fragment(trusted, {.outputs = {y}, .commands = {test.xor_of(w, y, 1)}});
  const PreparedModel prepared = PreparedModel::prepare(test.context, [&](Context& home) {
    Graph graph(home);
    std::vector<DeviceTensor> outputs = fragment.record(graph, {});
    outputs.push_back(fragment.record(graph, {}).at(0));
    return InferenceGraph{std::move(graph), {}, std::move(outputs)};
  });
  CHECK(std::ranges::count(prepared.topology().allocations, AllocationKind::weight, &TopologyAllocation::kind) == 1);
}

TEST_CASE("An output in an input's allocation lives in the caller's tensor", "[model][S65]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint32_t>({1}, {.label = "x"});
  const ModelFragment fragment = test.freeze().fragment(
      trusted, {.inputs = {x}, .outputs = {x}, .commands = {test.increment(grid(1), x, std::uint32_t{1})}});
  PreparedModel prepared = PreparedModel::prepare(test.context, [&](Context& home) {
    Graph graph(home);
    const DeviceTensor tensor = graph.tensor<std::uint32_t>({1}, {.label = "caller's"});
    DeviceTensor result = fragment.record(graph, {tensor}).at(0);
    result = fragment.record(graph, {result}).at(0);
    return InferenceGraph{std::move(graph), {tensor}, {tensor, result}};
  });
  // The caller's tensor is the only storage of the graph.
  CHECK(prepared.topology().requested_bytes == 4);
  std::optional<ModelSlot> slot = prepared.try_acquire();
  slot.value().input<std::uint32_t>(0)[0] = 40;
  Inference run = std::move(*slot).submit();
  REQUIRE(run.wait(in_a_minute()));
  CHECK(run.output<std::uint32_t>(0)[0] == 42);
  CHECK(run.output<std::uint32_t>(1)[0] == 42);
}

TEST_CASE("A graph of another context is refused", "[model][S51][S63]") {
  const ModelFragment fragment = stage(Context::open(test_device()), 1, "one");
  const Context other = Context::open(test_device());
  Graph graph(other);
  const DeviceTensor x = graph.tensor(kBytes);
  const Error error = check_refusal_changes_nothing([&] { return ModelState(fragment.context(), other, graph); },
                                                    [&] { static_cast<void>(fragment.record(graph, {x})); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The graph belongs to another context than the fragment.");
  CHECK(error.contexts() == std::vector<std::string>{"recording fragment \"one\""});
  PreparedModel prepared = fragment.prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  CHECK(infer(prepared, input) == xored(input, 1));
}

TEST_CASE("A graph into which recording was refused is still empty", "[model][S63][T5]") {
  const Context context = Context::open(test_device());
  const ModelFragment fragment = stage(context, 1, "one");
  const Error error = refusal([&] {
    static_cast<void>(PreparedModel::prepare(context, [&](Context& home) {
      Graph graph(home, "untouched");
      static_cast<void>(refusal([&] { static_cast<void>(fragment.record(graph, {})); }));
      return InferenceGraph{std::move(graph), {}, {}};
    }));
  });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The graph \"untouched\" has no commands.");
}

TEST_CASE("Another number of tensors than the fragment has inputs is refused", "[model][S52][S63][T5]") {
  const RecordRefusals r;
  const FragmentOptions options{.inputs = {r.part(r.low, 0, kCount)}};
  r.refuse(options, [](Graph&, const DeviceTensor&) { return std::vector<DeviceTensor>{}; },
           "0 tensors are given; the fragment has 1 inputs.", {"recording a fragment"});
  r.refuse(options,
           [](Graph&, const DeviceTensor& x) {
             return std::vector<DeviceTensor>{x, x};
           },
           "2 tensors are given; the fragment has 1 inputs.", {"recording a fragment"});
}

TEST_CASE("A tensor of another graph is refused", "[model][S53][S63]") {
  const RecordRefusals r;
  Graph other(r.test.context);
  const DeviceTensor foreign = other.tensor(kBytes);
  r.refuse({.inputs = {r.part(r.low, 0, kCount)}}, [&](Graph&, const DeviceTensor&) { return std::vector{foreign}; },
           "The tensor belongs to another graph.", {"binding inputs[0]", "recording a fragment"});
}

TEST_CASE("A tensor in memory of another context is refused", "[model][S53][S63]") {
  const RecordRefusals r;
  const Context other = Context::open(test_device());
  r.refuse({.inputs = {r.part(r.low, 0, kCount)}},
           [&](Graph&, const DeviceTensor&) { return std::vector{tensor_at(other, 4096)}; },
           "The tensor belongs to another context.", {"binding inputs[0]", "recording a fragment"});
}

TEST_CASE("A tensor with another descriptor than the input is refused", "[model][S54][S63][T5]") {
  const RecordRefusals r;
  const std::vector<TensorDesc> others{
      TensorDesc(DType::i8, {kCount}), TensorDesc(DType::u8, {8, 8}), TensorDesc(DType::u8, {kCount / 2}),
      TensorDesc(DType::u8, {kCount / 2}, Strides{2}), TensorDesc(DType::u8, {1, 1, 1, kCount}, Layout::nchw)};
  for (const TensorDesc& desc : others) {
    r.refuse({.inputs = {{r.low, desc}}}, just,
             "The tensor is u8[64]; the fragment's input is " + to_string(desc) + ".",
             {"binding inputs[0]", "recording a fragment"});
  }
}

TEST_CASE("One tensor for two allocations is refused", "[model][S56][S63][T5]") {
  const RecordRefusals r;
  r.refuse(
      {.inputs = {r.part(r.low, 0, kCount), r.part(r.high, 0, kCount)}, .commands = {r.test.xor_of(r.low, r.y, 1)}},
      [](Graph&, const DeviceTensor& x) {
        return std::vector<DeviceTensor>{x, x};
      },
      "The tensor overlaps the one bound to allocation \"low\"; the fragment's order was inferred for distinct "
      "memory.",
      {"binding inputs[1]", "recording a fragment"});
}

TEST_CASE("Tensors that share a few bytes are refused for two allocations", "[model][S56][S63]") {
  // A fragment whose two outputs overlap by 16 bytes, given to one that takes two allocations of 48 bytes.
  const RecordRefusals r;
  const Context& context = r.test.context;
  TestSession source(context);
  const auto whole = source.session.allocate<std::uint8_t>({80});
  const TensorDesc part(DType::u8, {48});
  const TensorRegion low(whole.slice(0, 48), part);
  const TensorRegion high(whole.slice(32, 48), part);
  const ModelFragment first = source.freeze().fragment(trusted, {.outputs = {low, high}, .commands = {fill(whole, 1)}});
  TestSession sink(context);
  const auto a = sink.session.allocate<std::uint8_t>({48}, {.label = "a"});
  const auto b = sink.session.allocate<std::uint8_t>({48}, {.label = "b"});
  const auto y = sink.session.allocate<std::uint8_t>({48});
  const ModelFragment second = sink.freeze().fragment(
      trusted, {.inputs = {a, b}, .outputs = {y}, .commands = {sink.xor_of(a, y, 0), sink.xor_of(b, y, 0)}});
  r.refuse(second, [&](Graph& graph, const DeviceTensor&) { return first.record(graph, {}); },
           "The tensor overlaps the one bound to allocation \"a\"; the fragment's order was inferred for distinct "
           "memory.",
           {"binding inputs[1]", "recording a fragment"});
}

TEST_CASE("A tensor over bytes of a weight of the fragment is refused", "[model][S56][S63]") {
  const RecordRefusals r;
  TestSession test(r.test.context);
  const auto w = test.weight(fresh_bytes(kCount, 1));
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  const ModelFragment fragment = test.freeze().fragment(
      trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, y, 0), test.xor_of(w, y, 0)}});
  r.refuse(fragment,
           [&](Graph& graph, const DeviceTensor& tensor) {
             // No call of weft's gives out a weight's bytes, but memory may have been adopted twice.
             static_cast<void>(fragment.record(graph, {tensor}));
             const std::vector<Allocation>& allocations = GraphAccess::state(graph).allocations;
             const auto weight =
                 std::ranges::find_if(allocations, [](const Allocation& found) { return found.weight != nullptr; });
             REQUIRE(weight != allocations.end());
             return std::vector<DeviceTensor>{tensor_at(r.test.context, weight->weight->address() + kCount - 1)};
           },
           "The tensor shares bytes with the weight \"w\" of the fragment.",
           {"binding inputs[0]", "recording a fragment"});
}

TEST_CASE("Two inputs of one allocation must be given one tensor at one offset", "[model][S57][S63]") {
  const RecordRefusals r;
  const std::string sentence = "Two inputs of allocation \"low\" are given different tensors.";
  const std::vector<std::string> contexts{"binding inputs[1]", "recording a fragment"};
  const ModelFragment same =
      r.model.fragment(trusted, {.inputs = {{r.low, kBytes}, {r.low, kBytes}}, .commands = {fill(r.low, 1)}});
  r.refuse(
      same,
      [](Graph& graph, const DeviceTensor& x) {
        return std::vector<DeviceTensor>{x, graph.tensor(kBytes)};
      },
      sentence, contexts);
  Graph graph(r.test.context);
  const DeviceTensor one = graph.tensor(kBytes);
  CHECK_NOTHROW(static_cast<void>(same.record(graph, {one, one})));

  // One tensor at two offsets of the allocation: neither of the two can hold.
  r.refuse(
      {.inputs = {r.part(r.low, 0, 8), r.part(r.low, 8, 8)}},
      [](Graph& home, const DeviceTensor&) {
        const DeviceTensor eight = home.tensor(TensorDesc(DType::u8, {8}));
        return std::vector<DeviceTensor>{eight, eight};
      },
      sentence, contexts);
}

TEST_CASE("The alias check comes before the one for consistency", "[model][S56][S57][S63]") {
  const RecordRefusals r;
  r.refuse({.inputs = {{r.low, kBytes}, {r.high, kBytes}, {r.low, kBytes}}},
           [](Graph& graph, const DeviceTensor& x) {
             const DeviceTensor two = graph.tensor(kBytes);
             return std::vector<DeviceTensor>{x, two, two};
           },
           "The tensor overlaps the one bound to allocation \"high\"; the fragment's order was inferred for distinct "
           "memory.",
           {"binding inputs[2]", "recording a fragment"});
}

TEST_CASE("An access before or behind the bound input is refused", "[model][S60][S63]") {
  const RecordRefusals r;
  const TensorRegion middle = r.part(r.low, 16, 8);
  const auto check_refused = [&](FragmentOptions options, const std::string& sentence, const std::string& context) {
    r.refuse(std::move(options),
             [](Graph& graph, const DeviceTensor&) {
               return std::vector<DeviceTensor>{graph.tensor(TensorDesc(DType::u8, {8}))};
             },
             sentence, {context, "recording a fragment"});
  };
  check_refused({.inputs = {middle}, .commands = {fill(r.y, 1), fill(r.low.slice(15, 1), 1)}},
                "The access at byte 15 of allocation \"low\" precedes the input bound at byte 16.",
                "resolving commands[1]");
  check_refused({.inputs = {middle}, .commands = {fill(r.y, 1), fill(r.low.slice(20, 5), 1)}},
                "The access to 5 bytes at byte 20 of allocation \"low\" passes the 8 bytes bound at byte 16.",
                "resolving commands[1]");
  check_refused({.inputs = {middle}, .outputs = {r.part(r.low, 24, 1)}, .commands = {fill(r.y, 1)}},
                "The access to 1 bytes at byte 24 of allocation \"low\" passes the 8 bytes bound at byte 16.",
                "resolving outputs[0]");
  check_refused({.inputs = {middle}, .commands = {r.test.xor_of(r.low.slice(10, 4), r.y.slice(0, 4), 1)}},
                "The access at byte 10 of allocation \"low\" precedes the input bound at byte 16.",
                "resolving commands[0]");
}

TEST_CASE("An input that brings another alignment than its region is refused where a kernel needs it", "[model][S63]") {
  const RecordRefusals r;
  // A fragment that gives out words two bytes into its storage, and some that bind them to a kernel of whole words.
  const Region n = r.n;
  const Region word = n.slice(0, 4);
  const TensorDesc one(DType::u8, {4});
  const ModelFragment giver = r.model.fragment(trusted, {.outputs = {{n.slice(2, 4), one}}, .commands = {fill(n, 1)}});
  const auto check_refused = [&](const Command& command, const std::string& argument) {
    r.refuse({.inputs = {{word, one}}, .commands = {fill(r.y, 1), command}},
             [&](Graph& graph, const DeviceTensor&) { return giver.record(graph, {}); },
             argument + " of \"increment\" comes to stand at byte 2 of its storage; the kernel needs a multiple of 4.",
             {"resolving commands[1]", "recording a fragment"});
  };
  check_refused(r.test.increment(grid(1), word, std::uint32_t{1}), "Argument 0 (\"x\")");
  struct One {
    std::uint64_t pointer = 0;
  };
  check_refused(dispatch(r.by_value, grid(1), {bytes(One{}, {{0, word.read_write()}}), std::uint32_t{1}}),
                "A pointer in argument 0 (\"x\")");
}

TEST_CASE("An access inside an input at an offset reaches the same bytes as in the fragment", "[model][S58]") {
  const RecordRefusals r;
  const ModelFragment fragment =
      r.model.fragment(trusted, {.inputs = {r.part(r.low, 16, 8)},
                                 .outputs = {r.part(r.y, 0, 4)},
                                 .commands = {r.test.xor_of(r.low.slice(18, 4), r.y.slice(0, 4), 0xff)}});
  PreparedModel recorded = PreparedModel::prepare(r.test.context, [&](Context& home) {
    Graph graph(home);
    const DeviceTensor x = graph.tensor(TensorDesc(DType::u8, {8}));
    std::vector<DeviceTensor> outputs = fragment.record(graph, {x});
    return InferenceGraph{std::move(graph), {x}, std::move(outputs)};
  });
  PreparedModel direct = fragment.prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(8, 5);
  const std::vector<std::uint8_t> expected = xored({input.begin() + 2, input.begin() + 6}, 0xff);
  CHECK(infer(recorded, input) == expected);
  CHECK(infer(direct, input) == expected);
}

TEST_CASE("What no input is bound to gets zeroed storage of its used extent", "[model][S59]") {
  TestSession test;
  const auto w = test.weight(fresh_bytes(kCount, 1));
  const auto h = test.session.allocate<std::uint8_t>({4096}, {.label = "h", .placement = Placement::shared});
  const auto y = test.session.allocate<std::uint8_t>({16}, {.label = "y"});
  static_cast<void>(test.session.allocate<std::uint8_t>({kCount}, {.label = "unused"}));
  const ModelFragment fragment = test.freeze().fragment(
      trusted,
      {.outputs = {y},
       .commands = {test.xor_of(w.slice(0, 8), y.slice(0, 8), 0), test.xor_of(h.slice(88, 8), y.slice(8, 8), 0)}});
  PreparedModel prepared = PreparedModel::prepare(test.context, [&](Context& home) {
    Graph graph(home);
    std::vector<DeviceTensor> outputs = fragment.record(graph, {});
    const std::vector<Allocation>& storage = GraphAccess::state(graph).allocations;
    REQUIRE(storage.size() == 3);
    CHECK(storage[0].label == "w");
    CHECK(storage[0].bytes == kCount);
    CHECK(storage[0].weight != nullptr);
    CHECK(storage[1].label == "h");
    CHECK(storage[1].bytes == 96);
    CHECK(storage[1].placement == Placement::shared);
    CHECK(storage[2].label == "y");
    CHECK(storage[2].bytes == 16);
    CHECK(storage[2].placement == Placement::device);
    return InferenceGraph{std::move(graph), {}, std::move(outputs)};
  });
  std::vector<std::uint8_t> expected = fresh_bytes(kCount, 1);
  expected.resize(8);
  expected.resize(16, 0);  // What nothing has written is zero.
  CHECK(infer(prepared, {}) == expected);
}

TEST_CASE("Recording appends the commands in their order and lets each overlap itself", "[model][S61]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const ModelFragment fragment = test.freeze().fragment(
      trusted, {.inputs = {x},
                .outputs = {x},
                .commands = {test.xor_of(x, x, 0x0f).label("in place"), fill(x.slice(0, 1), 7).label("clear"),
                             test.xor_of(x.slice(0, 8), x.slice(0, 8), 1).label("last")}});
  PreparedModel prepared = PreparedModel::prepare(test.context, [&](Context& home) {
    Graph graph(home);
    const DeviceTensor tensor = graph.tensor(kBytes);
    static_cast<void>(fragment.record(graph, {tensor}));
    std::vector<DeviceTensor> outputs = fragment.record(graph, {tensor});
    std::vector<std::string> labels;
    for (const Operation& operation : GraphAccess::state(graph).operations) labels.push_back(operation.label);
    CHECK(labels == std::vector<std::string>{"in place", "clear", "last", "in place", "clear", "last"});
    return InferenceGraph{std::move(graph), {tensor}, std::move(outputs)};
  });
  std::vector<std::uint8_t> expected = fresh_bytes(kCount, 1);
  CHECK(infer(prepared, fresh_bytes(kCount, 1)) == [&] {
    expected[0] = 7 ^ 1;
    return expected;
  }());
}

TEST_CASE("Recording returns the outputs and asks nothing of the device", "[model][S62][S64]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  const Context context = Context::open(test_device());
  const ModelFragment fragment = stage(context, 0x5a, "one");
  const MemoryStatistics memory = context.memory();
  counting->reset();
  Graph graph(context);
  const DeviceTensor x = graph.tensor(kBytes);
  std::vector<DeviceTensor> outputs = fragment.record(graph, {x});
  CHECK(counting->total() == 0);
  CHECK(context.memory() == memory);
  REQUIRE(outputs.size() == 1);
  CHECK(outputs[0].desc() == kBytes);

  // The values come with a run.
  PreparedModel prepared = PreparedModel::prepare(context, [&](Context&) {
    return InferenceGraph{std::move(graph), {x}, std::move(outputs)};
  });
  CHECK(counting->count(Verb::launch) == 0);
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  CHECK(infer(prepared, input) == xored(input, 0x5a));
}

TEST_CASE("A stated order counts from where the fragment is recorded", "[model]") {
  TestSession test;
  const auto a = test.session.allocate<std::uint8_t>({kCount}, {.label = "a"});
  const auto b = test.session.allocate<std::uint8_t>({kCount}, {.label = "b"});
  const ModelFragment fragment = test.freeze().fragment(trusted, {.commands = {fill(a, 1), fill(b, 1).after({0})}});
  const PreparedModel prepared = PreparedModel::prepare(test.context, [&](Context& home) {
    Graph graph(home);
    static_cast<void>(fragment.record(graph, {}));
    static_cast<void>(fragment.record(graph, {}));
    return InferenceGraph{std::move(graph), {}, {}};
  });
  std::vector<std::pair<std::uint32_t, std::uint32_t>> stated;
  for (const TopologyEdge& edge : prepared.topology().edges) {
    if (!edge.reasons.empty()) stated.emplace_back(edge.from, edge.to);
  }
  CHECK(stated == std::vector<std::pair<std::uint32_t, std::uint32_t>>{{0, 1}, {2, 3}});
}

TEST_CASE("A moved-from graph refuses every call", "[model]") {
  const Context context = Context::open(test_device());
  const ModelFragment fragment = stage(context, 1, "one");
  Graph graph(context);
  const DeviceTensor x = graph.tensor(kBytes);
  const Graph taken = std::move(graph);
  CHECK(taken.context() == context);
  const auto check_refused = [](const auto& call) {
    const Error error = refusal(call);
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == "The graph is moved from.");
  };
  check_refused([&] { static_cast<void>(graph.tensor(kBytes)); });
  check_refused([&] { static_cast<void>(graph.context()); });
  check_refused([&] { static_cast<void>(fragment.record(graph, {x})); });
  check_refused([&] {
    static_cast<void>(PreparedModel::prepare(context, [&](Context&) {
      return InferenceGraph{std::move(graph), {}, {}};
    }));
  });
}

TEST_CASE("A graph refuses an empty tensor", "[model]") {
  Graph graph(Context::open(test_device()));
  const Error error = refusal([&] { static_cast<void>(graph.tensor<float>({0, 3}, {.label = "none"})); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The tensor \"none\" of a graph is empty: f32[0,3].");
}

TEST_CASE("A factory's graph and tensors must belong together and to the context", "[model][S46]") {
  const Context context = Context::open(test_device());
  const ModelFragment fragment = stage(context, 1, "one");
  using Make = std::function<InferenceGraph(Graph, Graph, DeviceTensor, DeviceTensor)>;
  const auto check_refused = [&](const Make& make, const std::string& sentence,
                                 const std::vector<std::string>& contexts) {
    const auto prepare = [&] {
      static_cast<void>(PreparedModel::prepare(context, [&](Context& home) {
        Graph graph(home);
        Graph other(Context::open(test_device()));
        const DeviceTensor x = graph.tensor(kBytes);
        const DeviceTensor foreign = other.tensor(kBytes);
        static_cast<void>(fragment.record(graph, {x}));
        return make(std::move(graph), std::move(other), x, foreign);
      }));
    };
    const Error error = check_refusal_changes_nothing([&] { return ModelState(context); }, prepare);
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
    CHECK(error.contexts() == contexts);
  };
  check_refused(
      [](Graph, Graph other, const DeviceTensor&, const DeviceTensor& foreign) {
        return InferenceGraph{std::move(other), {foreign}, {}};
      },
      "The graph belongs to another context.", {"preparing slot 0 of 1"});
  check_refused(
      [](Graph graph, Graph, const DeviceTensor& x, const DeviceTensor& foreign) {
        return InferenceGraph{std::move(graph), {x, foreign}, {}};
      },
      "The tensor belongs to another graph.", {"placing inputs[1]", "preparing slot 0 of 1"});
  check_refused(
      [](Graph graph, Graph, const DeviceTensor&, const DeviceTensor& foreign) {
        return InferenceGraph{std::move(graph), {}, {foreign}};
      },
      "The tensor belongs to another graph.", {"placing outputs[0]", "preparing slot 0 of 1"});
}

TEST_CASE("Slots with other inputs or outputs than slot 0 are refused", "[model][S48][S49]") {
  const Context context = Context::open(test_device());
  const ModelFragment fragment = stage(context, 1, "one");
  const auto prepare = [&](const std::function<void(std::uint32_t, InferenceGraph&)>& change) {
    std::uint32_t slot = 0;
    const auto make = [&](Context& home) {
      Graph graph(home);
      const DeviceTensor x = graph.tensor(kBytes);
      std::vector<DeviceTensor> outputs = fragment.record(graph, {x});
      InferenceGraph result{std::move(graph), {x}, std::move(outputs)};
      change(slot++, result);
      return result;
    };
    return check_refusal_changes_nothing(
        [&] { return ModelState(context); },
        [&] { static_cast<void>(PreparedModel::prepare(context, make, {.slots = 3})); });
  };
  const Error more = prepare([](std::uint32_t slot, InferenceGraph& graph) {
    if (slot == 2) graph.outputs.push_back(graph.inputs[0]);
  });
  CHECK(more.code() == ErrorCode::invalid);
  CHECK(more.sentence() == "The slot has 2 outputs; slot 0 has 1.");
  CHECK(more.contexts() == std::vector<std::string>{"preparing slot 2 of 3"});
  const Error other = prepare([](std::uint32_t slot, InferenceGraph& graph) {
    if (slot == 1) graph.inputs[0] = graph.graph.tensor(TensorDesc(DType::i8, {kCount}));
  });
  CHECK(other.code() == ErrorCode::invalid);
  CHECK(other.sentence() == "The inputs[0] of the slot is i8[64]; that of slot 0 is u8[64].");
  CHECK(other.contexts() == std::vector<std::string>{"preparing slot 1 of 3"});
}

TEST_CASE("A factory's own error comes through and leaves nothing", "[model][S49]") {
  struct Mine {};
  const Context context = Context::open(test_device());
  const MemoryStatistics before = context.memory();
  CHECK_THROWS_AS(static_cast<void>(
                      PreparedModel::prepare(context, [](Context&) -> InferenceGraph { throw Mine(); }, {.slots = 3})),
                  Mine);
  CHECK(context.memory() == before);
}

TEST_CASE("Regions name no input of a pool that was recorded", "[model]") {
  XorModel model(kCount);
  PreparedModel prepared = PreparedModel::prepare(model.fragment.context(), [&](Context& home) {
    Graph graph(home);
    const DeviceTensor x = graph.tensor(kBytes);
    std::vector<DeviceTensor> outputs = model.fragment.record(graph, {x});
    return InferenceGraph{std::move(graph), {x}, std::move(outputs)};
  });
  ModelSlot slot = prepared.try_acquire().value();
  const Error error = refusal([&] { static_cast<void>(slot.input(model.x)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The pool has no input regions; tensors recorded into a graph are named by their index.");
}

}  // namespace weft::test
