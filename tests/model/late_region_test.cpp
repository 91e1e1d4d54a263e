#include "catch.h"
#include "context_state.h"
#include "device/faults.h"
#include "device/registry.h"
#include "device_tensor_access.h"
#include "foreign_stream.h"
#include "prepared_access.h"
#include "runtime/memory_work.h"
#include "slot_pool.h"
#include "support/call_count.h"
#include "support/device.h"
#include "support/foreign_stream.h"
#include "support/marking_device.h"
#include "support/requests.h"
#include "tracked_memory.h"
#include <weft/captured.h>
#include <weft/completion_source.h>
#include <weft/kernels.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Memory that requests bring. Scalars are tested in model/late_test.cpp.

namespace weft::test {
namespace {

using Values = std::vector<std::uint8_t>;

constexpr std::uint64_t kCount = 64;

/// y = table ^ x: the table is brought by each request.
struct TableModel {
  explicit TableModel(const Context& context) : TableModel(TestSession(context)) {}
  explicit TableModel(TestSession test = {})
      : x(test.session.allocate<std::uint8_t>({kCount}, {.label = "x"})),
        y(test.session.allocate<std::uint8_t>({kCount}, {.label = "y"})),
        table(test.session.late_region<std::uint8_t>({kCount}, {.label = "table"})),
        log(test.session.late_region<std::uint8_t>({kCount}, {.label = "log"})),
        state(test.session.state<std::uint8_t>({kCount}, {.label = "cache"})),
        w(test.weight(fresh_bytes(kCount, 99))),
        h(test.session.allocate<std::uint8_t>({3 * kCount}, {.label = "h"})),
        definition(test.freeze()),
        fragment(definition.fragment(trusted,
                                     {.inputs = {x},
                                      .outputs = {y},
                                      .commands = {test.xor_of(table, y, 0x0f), test.xor_of(w, h.slice(0, kCount), 0),
                                                   test.xor_of(state, h.slice(kCount, kCount), 0), fill(log, 0x11),
                                                   test.xor_of(x.slice(0, kCount / 2), log.slice(0, kCount / 2), 0xf0)},
                                      .label = "table"})) {}

  /// What is left in the log.
  [[nodiscard]] static Values logged(const Values& input) {
    Values log(kCount, 0x11);
    std::transform(input.begin(), input.begin() + kCount / 2, log.begin(),
                   [](std::uint8_t byte) { return static_cast<std::uint8_t>(byte ^ 0xf0); });
    return log;
  }

  TypedRegion<std::uint8_t> x;
  TypedRegion<std::uint8_t> y;
  TypedRegion<std::uint8_t> table;
  TypedRegion<std::uint8_t> log;
  TypedRegion<std::uint8_t> state;
  TypedRegion<std::uint8_t> w;
  TypedRegion<std::uint8_t> h;
  ModelDefinition definition;
  ModelFragment fragment;
};

ModelSlot filled(PreparedModel& prepared, const Values& input) {
  ModelSlot slot = prepared.acquire(in_a_minute()).value();
  std::ranges::copy(input, slot.input<std::uint8_t>(0).begin());
  return slot;
}

DeviceTensor tensor_at(const Context& context, DeviceAddress address, const TensorDesc& desc = bytes_desc(kCount)) {
  auto memory =
      std::make_shared<TrackedMemory>(*ContextAccess::state(context), "elsewhere", address, nullptr, desc.bytes());
  return DeviceTensorAccess::in_memory(desc, std::move(memory), 0, Completion());
}

const Slot& slot_of(const ModelSlot& slot) { return PreparedAccess::pool(slot)->slot(PreparedAccess::slot(slot)); }

/// Where an allocation stands in the slot.
DeviceAddress place_in(const ModelSlot& slot, const std::string& label) {
  const std::vector<Allocation>& allocations = slot_of(slot).plan().allocations;
  const auto found = std::ranges::find(allocations, label, &Allocation::label);
  REQUIRE(found != allocations.end());
  return slot_of(slot).addresses()[static_cast<std::size_t>(found - allocations.begin())];
}

}  // namespace

TEST_CASE("A request brings a scalar and a table", "[model][late]") {
  TestSession test;
  ModelSession& session = test.session;
  const auto scale = session.load(kernels::scale);
  const auto y = session.allocate<float>({kCount}, {.label = "y"});
  const auto table = session.late_region<float>({kCount}, {.label = "table"});
  const auto alpha = session.late<float>({.label = "alpha", .value = 1.0f});
  const std::vector<Command> commands{scale(workload(kCount), table, y, alpha, kCount)};
  PreparedModel prepared = test.freeze().prepare(trusted, {.outputs = {y}, .commands = commands});
  const std::vector<float> numbers(kCount, 3.0f);
  const DeviceTensor rows =
      prepared.context().upload({TensorDesc(DType::f32, {kCount}), std::as_bytes(std::span(numbers)), "rows"});

  std::optional<ModelSlot> slot = prepared.acquire(in_a_minute());
  slot->set(alpha, 0.5f);   // For this request; its own value otherwise.
  slot->bind(table, rows);  // The run follows what produces the tensor, and keeps it.
  Inference run = std::move(*slot).submit();
  REQUIRE(run.wait(in_a_minute()));
  CHECK(run.output(y)[0] == 1.5f);
}

TEST_CASE("A request reads and writes the memory that it is bound to and no other", "[model][late]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  const TableModel model;
  const bool separate = GENERATE(false, true);
  PreparedModel prepared = model.fragment.prepare({.slots = 1, .separate_allocations = separate});
  const Context& context = prepared.context();
  const std::vector<DeviceTensor> tables{ready(context, fresh_bytes(kCount, 1)),
                                         ready(context, fresh_bytes(kCount, 2))};
  const std::vector<DeviceTensor> logs{context.tensor(bytes_desc(kCount)), context.tensor(bytes_desc(kCount))};
  const auto serve = [&](std::size_t table, std::size_t log, std::uint64_t seed) {
    const Values input = fresh_bytes(kCount, seed);
    counting->reset();
    ModelSlot slot = filled(prepared, input);
    slot.bind(model.table, tables[table]);
    slot.bind(model.log, logs[log]);
    Inference run = std::move(slot).submit();
    CHECK(result(run) == xored(fresh_bytes(kCount, table + 1), 0x0f));
    const std::uint64_t patched = counting->count(Verb::set_executable_node);
    CHECK(values(logs[log]) == TableModel::logged(input));
    return patched;
  };
  CHECK(serve(0, 0, 10) == 3);
  CHECK(serve(0, 0, 11) == 0);
  CHECK(serve(1, 0, 12) == 1);
  CHECK(serve(1, 1, 13) == 2);
  CHECK(values(logs[0]) == TableModel::logged(fresh_bytes(kCount, 12)));
  CHECK(prepared.topology().count(NodeKind::dispatch) == 4);
  CHECK(prepared.topology().count(NodeKind::fill) == 0);  // Fills of late regions are kernels.
}

TEST_CASE("A fill of a part of a late region far from its start sets these bytes and no other", "[model][late]") {
  constexpr std::uint64_t kLarge = 1 << 22;
  constexpr std::uint64_t kAt = (1 << 21) + 64;
  TestSession test;
  const auto big = test.session.late_region<std::uint8_t>({kLarge}, {.label = "big"});
  const auto y = test.session.allocate<std::uint8_t>({16}, {.label = "y"});
  PreparedModel prepared =
      test.freeze()
          .fragment(trusted, {.outputs = {y}, .commands = {fill(y, 1), fill(big.slice(kAt, 64), 0x22)}})
          .prepare();
  for (const Placement placement : {Placement::device, Placement::shared}) {
    const DeviceTensor tensor = prepared.context().tensor(big.desc, {.placement = placement});
    std::optional<ModelSlot> slot = prepared.acquire(in_a_minute());
    REQUIRE(slot.has_value());
    slot->bind(big, tensor);
    Inference run = std::move(*slot).submit();
    REQUIRE(run.wait(in_a_minute()));
    const Values bytes = values(tensor);
    CHECK(std::ranges::count(bytes, 0x22) == 64);
    CHECK(std::ranges::all_of(std::span(bytes).subspan(kAt, 64), [](std::uint8_t byte) { return byte == 0x22; }));
  }
}

TEST_CASE("A late region is bound for one request", "[model][late]") {
  const TableModel model;
  PreparedModel prepared = model.fragment.prepare({.slots = 1});
  const Context& context = prepared.context();
  const DeviceTensor table = ready(context, fresh_bytes(kCount, 1));
  const DeviceTensor log = context.tensor(bytes_desc(kCount));
  const Values input = fresh_bytes(kCount, 3);
  {
    ModelSlot slot = filled(prepared, input);
    slot.bind(model.table, table);
    slot.bind(model.log, log);
    Inference run = std::move(slot).submit();
    static_cast<void>(result(run));
  }
  ModelSlot slot = filled(prepared, input);
  slot.bind(model.log, log);
  const Error error = refusal([&] { static_cast<void>(std::move(slot).submit()); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The late region \"table\" is not bound.");
  slot.bind(model.table, table);  // What is bound stays so.
  Inference run = std::move(slot).submit();
  CHECK(result(run) == xored(fresh_bytes(kCount, 1), 0x0f));
}

TEST_CASE("Memory that a late region was bound to goes with the request", "[model][late]") {
  const TableModel model;
  PreparedModel prepared = model.fragment.prepare({.slots = 1});
  const Context& context = prepared.context();
  const std::uint64_t before = context.memory().requested.live_bytes;
  {
    ModelSlot slot = filled(prepared, fresh_bytes(kCount, 3));
    slot.bind(model.table, ready(context, fresh_bytes(kCount, 1)));
    slot.bind(model.log, context.tensor(bytes_desc(kCount)));
    Inference run = std::move(slot).submit();  // The tensors went at once.
    CHECK(result(run) == xored(fresh_bytes(kCount, 1), 0x0f));
  }
  CHECK(context.memory().requested.live_bytes == before);
  {
    ModelSlot slot = filled(prepared, fresh_bytes(kCount, 3));
    slot.bind(model.table, ready(context, fresh_bytes(kCount, 1)));
    CHECK(context.memory().requested.live_bytes > before);
  }
  CHECK(context.memory().requested.live_bytes == before);
}

TEST_CASE("A late region is refused memory that the plan took for apart", "[model][late]") {
  const TableModel model;
  const bool separate = GENERATE(false, true);
  PreparedModel prepared = model.fragment.prepare({.slots = 1, .separate_allocations = separate});
  const Context& context = prepared.context();
  ModelSlot slot = filled(prepared, fresh_bytes(kCount, 3));
  const auto refused = [&](const DeviceTensor& tensor) {
    const Error error = refusal([&] { slot.bind(model.table, tensor); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.contexts() == std::vector<std::string>{"binding the late region \"table\""});
    return std::string(error.sentence());
  };
  const std::string inferred = "; the commands' order was inferred for memory apart.";
  for (const char* own : {"x", "h", "y", "control"}) {
    INFO(own);
    CHECK(refused(tensor_at(context, place_in(slot, own))) ==
          "The tensor shares bytes with memory of the slot" + inferred);
  }
  CHECK(refused(tensor_at(context, place_in(slot, "x staging"))) ==
        "The tensor shares bytes with pinned memory of the slot" + inferred);
  CHECK(refused(tensor_at(context, place_in(slot, "completion word"))) ==
        "The tensor shares bytes with pinned memory of the slot" + inferred);
  // The last byte alone.
  CHECK(refused(tensor_at(context, place_in(slot, "w") + kCount - 1)) ==
        "The tensor shares bytes with the weight \"w\"" + inferred);
  CHECK(refused(model.definition.state(model.state)) ==
        "The tensor shares bytes with the state \"cache\" of the model" + inferred);
  const DeviceTensor log = context.tensor(bytes_desc(2 * kCount));
  slot.bind(model.log, log.view(bytes_desc(kCount)));
  CHECK(refused(log.view(bytes_desc(kCount), kCount - 1)) ==
        "The tensor shares bytes with what the late region \"log\" is bound to" + inferred);
  slot.bind(model.table, log.view(bytes_desc(kCount), kCount));
  slot.bind(model.log, log.view(bytes_desc(kCount)));  // Again: over its own bytes.
  Inference run = std::move(slot).submit();
  CHECK(result(run) == Values(kCount, 0x0f));
}

TEST_CASE("Memory that a graph binds is refused to a late region where runs use it", "[model][late]") {
  const TableModel model;
  const Context context = model.fragment.context();
  const DeviceTensor bound = ready(context, fresh_bytes(2 * kCount, 5));
  PreparedModel prepared = PreparedModel::prepare(context, [&](Context& home) {
    Graph graph(home);
    const DeviceTensor x = graph.bind(bound.view(bytes_desc(kCount)));
    std::vector<DeviceTensor> outputs = model.fragment.record(graph, {x});
    return InferenceGraph{.graph = std::move(graph), .inputs = {}, .outputs = std::move(outputs)};
  });
  ModelSlot slot = prepared.acquire(in_a_minute()).value();
  CHECK(contains(refusal([&] { slot.bind(model.table, bound.view(bytes_desc(kCount), kCount / 2 - 1)); }).sentence(),
                 "The tensor shares bytes with the memory"));
  slot.bind(model.table, bound.view(bytes_desc(kCount), kCount));
  slot.bind(model.log, context.tensor(bytes_desc(kCount)));
  Inference run = std::move(slot).submit();
  const Values all = fresh_bytes(2 * kCount, 5);
  CHECK(result(run) == xored(Values(all.begin() + kCount, all.end()), 0x0f));
}

TEST_CASE("A tensor of the request that a late region writes is refused beside it", "[model][late]") {
  const TableModel model;
  PreparedModel prepared = model.fragment.prepare({.slots = 1, .forms = {kDeviceDevice}});
  const Context& context = prepared.context();
  const DeviceTensor x = ready(context, fresh_bytes(kCount, 1));
  const DeviceTensor table = ready(context, fresh_bytes(kCount, 2));
  const DeviceTensor log = context.tensor(bytes_desc(kCount));
  ModelSlot slot = prepared.acquire(in_a_minute()).value();
  slot.bind(model.table, table);
  slot.bind(model.log, log);
  CHECK(contains(refusal([&] { static_cast<void>(std::move(slot).submit({log})); }).sentence(),
                 "nothing orders the two"));
  CHECK(contains(
      refusal([&] { static_cast<void>(std::move(slot).submit({x}, SubmitOptions{.into = {table}})); }).sentence(),
      "nothing orders the two"));
  slot.bind(model.table, x);  // Both only read it.
  Inference run = std::move(slot).submit({x});
  CHECK(values(run.tensor(0)) == xored(fresh_bytes(kCount, 1), 0x0f));
}

TEST_CASE("A tensor that is not what a late region was declared as is refused", "[model][late]") {
  TestSession test;
  const auto table = test.session.late_region<std::uint32_t>({16}, {.label = "table"});
  const Region bytes = test.session.late_region(64, {.label = "bytes"});
  const auto unused = test.session.late_region<std::uint32_t>({16}, {.label = "unused"});
  const auto y = test.session.allocate<std::uint32_t>({16}, {.label = "y"});
  const auto z = test.session.allocate<std::uint8_t>({64}, {.label = "z"});
  const auto copy = test.slow_copy;
  PreparedModel prepared = test.freeze().prepare(
      trusted, {.outputs = {y}, .commands = {copy(workload(16), table, y, 16ul, 0ul), test.xor_of(bytes, z, 0)}});
  const Context& context = prepared.context();
  const TensorDesc words(DType::u32, {16});
  ModelSlot slot = prepared.acquire(in_a_minute()).value();
  const auto refused = [&](const Region& region, const DeviceTensor& tensor) {
    const Error error = refusal([&] { slot.bind(region, tensor); });
    CHECK(error.code() == ErrorCode::invalid);
    return std::string(error.sentence());
  };
  CHECK(refused(table, context.tensor(TensorDesc(DType::i32, {16}))) ==
        "The tensor is i32[16]; the late region is u32[16].");
  CHECK(refused(table, context.tensor(TensorDesc(DType::u32, {4, 4}))) ==
        "The tensor is u32[4,4]; the late region is u32[16].");
  CHECK(refused(bytes, context.tensor(TensorDesc(DType::u32, {17}))) ==
        "The tensor u32[17] has 68 bytes; the late region has 64.");
  CHECK(contains(refused(table.slice(0, 32), context.tensor(words)), "The region is the bytes 0 to 32 of the late"));
  CHECK(contains(refused(unused, context.tensor(words)), "is no late region of the model's commands."));
  CHECK(contains(refused(y, context.tensor(words)), "is no late region of the model's commands."));
  const DeviceTensor far = context.tensor(TensorDesc(DType::u32, {32}));
  CHECK(refused(table, tensor_at(context, address_of(far) + 2, words)) ==
        "The tensor stands 2 bytes behind a multiple of 4; the kernels need it at one.");
  Graph graph(context);
  CHECK(refused(table, graph.tensor(words)) == "The tensor is of an unprepared graph; it has no bytes yet.");
  const Context other = Context::open(test_device());
  CHECK(refused(table, other.tensor(words)) == "The tensor belongs to another context.");

  slot.bind(table, tensor_at(context, address_of(far) + 4, words));
  slot.bind(bytes, context.tensor(TensorDesc(DType::u32, {16})));
  Inference run = std::move(slot).submit();
  REQUIRE(run.wait(in_a_minute()));
  CHECK(run.output(y)[15] == 0);
}

TEST_CASE("A late region is no input nor output nor the session's nor a captured call's", "[model][late]") {
  TestSession test;
  const auto table = test.session.late_region<std::uint8_t>({kCount}, {.label = "table"});
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  Values bytes(kCount);
  const auto refused = [&](const auto& call) {
    const Error error = refusal(call);
    CHECK(error.code() == ErrorCode::invalid);
    return std::string(error.sentence());
  };
  const std::string region = "The region is of \"table\", which each request brings; ";
  CHECK(refused([&] { test.session.upload(table, std::as_bytes(std::span(bytes))); }) ==
        region + "a session has no bytes of it.");
  CHECK(refused([&] { test.session.read(table, std::as_writable_bytes(std::span(bytes))); }) ==
        region + "a session has no bytes of it.");
  CHECK(refused([&] { test.session.record("key", {test.xor_of(table, y, 0)}); }) ==
        region + "a session's own graphs run without one.");
  CHECK(refused([&] { test.session.record("key", {fill(table, 0)}); }) ==
        region + "a session's own graphs run without one.");
  CHECK(contains(refused([&] { static_cast<void>(test.session.late_region(0, {.label = "none"})); }), "has 0 bytes"));
  const Command xor_table = test.xor_of(table, y, 0);
  const ModelDefinition definition = test.freeze();
  const auto fragment = [&](FragmentOptions options) {
    return refused([&] { static_cast<void>(definition.fragment(trusted, std::move(options))); });
  };
  const std::string tensor = region + "inputs and outputs are memory of each slot's own.";
  CHECK(fragment({.inputs = {table}, .outputs = {y}, .commands = {xor_table}}) == tensor);
  CHECK(fragment({.outputs = {table}, .commands = {xor_table}}) == tensor);
  Captured call{.name = "call", .bindings = {table.read()}, .enqueue = [](const CapturedCall&) {}};
  CHECK(fragment({.outputs = {y}, .commands = {Command(std::move(call)), xor_table}}) ==
        region + "a captured call's addresses are recorded once.");
  CHECK(contains(refused([&] { static_cast<void>(definition.state(table)); }), "is a late region"));
}

TEST_CASE("One binding reaches a fragment that is recorded twice", "[model][late]") {
  const TableModel model;
  PreparedModel prepared = PreparedModel::prepare(model.fragment.context(), [&](Context& context) {
    Graph graph(context);
    const DeviceTensor x = graph.tensor(bytes_desc(kCount), {.label = "x"});
    std::vector<DeviceTensor> outputs = model.fragment.record(graph, {x});
    outputs.push_back(model.fragment.record(graph, {x}).front());
    return InferenceGraph{.graph = std::move(graph), .inputs = {x}, .outputs = std::move(outputs)};
  });
  const auto late =
      std::ranges::count(prepared.topology().allocations, AllocationKind::late, &TopologyAllocation::kind);
  CHECK(late == 2);
  CHECK(contains(to_text(prepared.topology()), " late \"table\" 64 bytes\n"));
  ModelSlot slot = filled(prepared, fresh_bytes(kCount, 3));
  slot.bind(model.table, ready(prepared.context(), fresh_bytes(kCount, 1)));
  const DeviceTensor log = prepared.context().tensor(bytes_desc(kCount));
  slot.bind(model.log, log);
  Inference run = std::move(slot).submit();
  const Values expected = xored(fresh_bytes(kCount, 1), 0x0f);
  CHECK(result(run) == expected);
  CHECK(std::ranges::equal(run.output<std::uint8_t>(1), expected));
  CHECK(values(log) == TableModel::logged(fresh_bytes(kCount, 3)));
}

TEST_CASE("A bound table follows its producer and a later writer follows the run", "[model][late]") {
  constexpr std::uint64_t kWords = 16;
  TestSession test;
  const Context context = test.context;
  const auto a = test.session.allocate<std::uint32_t>({kWords}, {.label = "a"});
  const auto b = test.session.allocate<std::uint32_t>({kWords}, {.label = "b"});
  const auto table = test.session.late_region<std::uint32_t>({kWords}, {.label = "table"});
  const auto copy = test.slow_copy;
  constexpr std::uint64_t kSlow = 20'000'000;
  const ModelDefinition definition = test.freeze();
  PreparedModel producer = definition.prepare(
      trusted, {.inputs = {a}, .outputs = {b}, .commands = {copy(workload(kWords), a, b, kWords, kSlow)}},
      {.forms = {kHostDevice}});
  PreparedModel reader =
      definition.prepare(trusted, {.outputs = {b}, .commands = {copy(workload(kWords), table, b, kWords, kSlow)}});
  const TensorDesc words(DType::u32, {kWords});
  const auto tensor_of = [&](std::uint32_t value) {
    const std::vector<std::uint32_t> all(kWords, value);
    return context.upload({words, std::as_bytes(std::span(all)), "words"});
  };
  const DeviceTensor bytes = tensor_of(1);
  const DeviceTensor last = tensor_of(9);
  for (const bool by_tensor : {false, true}) {
    ModelSlot slot = producer.acquire(in_a_minute()).value();
    std::ranges::fill(slot.input(a), by_tensor ? 3u : 2u);
    Inference made = std::move(slot).submit(SubmitOptions{.into = {bytes}});
    ModelSlot reading = reader.acquire(in_a_minute()).value();
    reading.bind(table, by_tensor ? made.tensor(0) : bytes);
    Inference run = std::move(reading).submit();
    static_cast<void>(last.copy_into(bytes));
    REQUIRE(run.wait(in_a_minute()));
    CHECK(run.output(b)[kWords - 1] == (by_tensor ? 3u : 2u));
    REQUIRE(made.wait(in_a_minute()));
  }
  Readback after = bytes.download();
  REQUIRE(after.wait(in_a_minute()));
  CHECK(std::to_integer<int>(after.bytes(0)[0]) == 9);
}

TEST_CASE("Runs over bound tables stand in their order in every legal order", "[model][late][host-only]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    INFO("seed " << seed);
    HeldContext held(seed);
    const TableModel model(held.context);
    PreparedModel prepared = model.fragment.prepare({.slots = 4});
    const DeviceTensor table = upload(held.context, fresh_bytes(kCount, 100));
    const DeviceTensor logs = held.context.tensor(bytes_desc(kCount));
    std::vector<DeviceTensor> tables;
    for (std::uint64_t i = 0; i < 4; ++i) tables.push_back(ready(held.context, fresh_bytes(kCount, i)));
    held.device->hold();
    std::vector<Inference> runs;
    for (std::uint64_t i = 0; i < 4; ++i) {
      static_cast<void>(tables[i].copy_into(table));
      ModelSlot slot = filled(prepared, fresh_bytes(kCount, i));
      slot.bind(model.table, table);
      slot.bind(model.log, logs);
      runs.push_back(std::move(slot).submit());
    }
    held.device->release();
    for (std::uint64_t i = 0; i < 4; ++i) CHECK(result(runs[i]) == xored(fresh_bytes(kCount, i), 0x0f));
    CHECK(values(logs) == TableModel::logged(fresh_bytes(kCount, 3)));
  }
}

TEST_CASE("A request whose bound table is produced behind the host waits for it", "[model][late]") {
  const TableModel model;
  PreparedModel prepared = model.fragment.prepare({.slots = 1});
  PreparedModel producer =
      XorModel(TestSession(prepared.context()), kCount, 0xff).fragment.prepare({.slots = 1, .forms = {kHostDevice}});
  const auto produce = [&](const CompletionSource& source) {
    ModelSlot slot = filled(producer, fresh_bytes(kCount, 1));
    return std::move(slot).submit({.after = {source.completion()}});
  };
  const auto consume = [&](const DeviceTensor& table) {
    ModelSlot slot = filled(prepared, fresh_bytes(kCount, 3));
    slot.bind(model.table, table);
    slot.bind(model.log, prepared.context().tensor(bytes_desc(kCount)));
    return std::move(slot).submit();
  };
  {
    CompletionSource source(prepared.context(), "tokenizer");
    std::optional<Inference> made = produce(source);
    Inference run = consume(made->tensor(0));
    made.reset();  // The gated run keeps the table, and with it the slot that it stands in.
    CHECK(!producer.try_acquire().has_value());
    CHECK(source.complete());
    CHECK(result(run) == xored(fresh_bytes(kCount, 1), 0xff ^ 0x0f));
    CHECK(producer.acquire(in_a_minute()).has_value());
  }
  CompletionSource source(prepared.context(), "tokenizer");
  Inference made = produce(source);
  Inference run = consume(made.tensor(0));
  CHECK(made.completion().cancel());
  CHECK(refusal([&] { static_cast<void>(run.wait(in_a_minute())); }).code() == ErrorCode::cancelled);
  CHECK(source.complete());
}

TEST_CASE("A warm request that brings memory allocates nothing and locks once", "[model][late][counted]") {
  const ScopedDevice scoped(test_device(), std::make_shared<MarkingDevice>(open_device(test_device())));
  const TableModel model;
  PreparedModel prepared = model.fragment.prepare({.slots = 1});
  const Context& context = prepared.context();
  const std::vector<DeviceTensor> tables{ready(context, fresh_bytes(kCount, 1)),
                                         ready(context, fresh_bytes(kCount, 2))};
  const DeviceTensor log = context.tensor(bytes_desc(kCount));
  const Values input = fresh_bytes(kCount, 3);
  Calls seen;
  for (std::size_t i = 0; i < 6; ++i) {
    call_count = {};
    ModelSlot slot = filled(prepared, input);
    slot.bind(model.table, tables[i % 2]);
    slot.bind(model.log, log);
    Inference run = std::move(slot).submit();
    seen = call_count.outside;
    CHECK(result(run) == xored(fresh_bytes(kCount, i % 2 + 1), 0x0f));
  }
  CHECK(seen == Calls{.mutexes = 1});  // What others may touch is put in order under a lock.
  CHECK(prepared.statistics().patched_nodes == 3 + 5);
}

TEST_CASE("A graph that is handed out has the late values of its moment", "[model][late]") {
  TestSession test;
  const auto table = test.session.late_region<std::uint8_t>({kCount}, {.label = "table"});
  const auto log = test.session.late_region<std::uint8_t>({kCount}, {.label = "log"});
  const auto mask = test.session.late<std::uint8_t>({.label = "mask"});
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  const auto kernel = test.xor_bytes;
  PreparedModel prepared = test.freeze().prepare(
      trusted, {.outputs = {y}, .commands = {kernel(workload(kCount), table, y, kCount, mask), fill(log, 0x22)}});
  const Context& context = prepared.context();
  const ForeignStream stream(context);
  const DeviceTensor values_in = ready(context, fresh_bytes(kCount, 1));
  const DeviceTensor logged = context.tensor(bytes_desc(kCount));
  ModelSlot slot = prepared.acquire(in_a_minute()).value();
  CHECK(refusal([&] { static_cast<void>(foreign::graph(prepared, slot, 0)); }).sentence() ==
        "The late scalar \"mask\" is not set, and has no value of its own.");
  slot.set(mask, std::uint8_t{0x3c});
  slot.bind(table, values_in);
  slot.bind(log, logged);
  const foreign::Graph made = foreign::graph(prepared, slot, 0);
  const UniqueExecutable executable = instantiate(ContextAccess::state(context)->domain()->api(), made.graph.get());
  check(stream.api().launch(executable.get(), stream.handle()), "launch");
  stream.wait();
  const auto* output = static_cast<const std::uint8_t*>(made.outputs.at(0));
  CHECK(Values(output, output + kCount) == xored(fresh_bytes(kCount, 1), 0x3c));
  CHECK(values(logged) == Values(kCount, 0x22));
}

}  // namespace weft::test
