#include "catch.h"
#include "device/faults.h"
#include "device/own_kernels.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/limits_device.h"
#include "support/model_fixture.h"
#include "support/model_state.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;
constexpr std::uint8_t kMask = 1;

/// A model whose every call of the device is counted, on a device of these limits.
struct CountedModel {
  explicit CountedModel(const std::function<void(DeviceLimits&)>& change = [](DeviceLimits&) {})
      : counting(std::make_shared<CountingDevice>(std::make_shared<LimitsDevice>(open_device(test_device()), change))) {
  }

  std::shared_ptr<CountingDevice> counting;
  ScopedDevice scoped{test_device(), counting};
  TestSession test;
  TypedRegion<std::uint8_t> x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  TypedRegion<std::uint8_t> y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  TypedRegion<std::uint32_t> n = test.session.allocate<std::uint32_t>({4}, {.label = "n"});
  TypedRegion<std::uint8_t> w = test.weight(std::vector<std::uint8_t>(kCount, 7));
  KernelId shared_by_rule = test.session.load([] {
    KernelSpec spec = xor_bytes_spec();
    spec.launch = [](std::span<const std::uint64_t> words) { return LaunchConfig{grid(1), words[0]}; };
    return spec;
  }());
  ModelDefinition model = test.freeze();

  /// The context, and how often the device was asked to build, change or launch a graph, or to raise a kernel's limit.
  [[nodiscard]] ModelState state() const {
    ModelState state(model.context());
    for (const Verb verb : {Verb::create_graph, Verb::add_node, Verb::set_node, Verb::instantiate,
                            Verb::set_executable_node, Verb::launch, Verb::raise_dynamic_shared}) {
      state = std::move(state).with(to_string(verb), counting->count(verb));
    }
    return state;
  }

  /// Checks that a model of this command is refused before the device hears of a graph, and that another one runs then.
  void refuse(const Command& command, const std::string& sentence, std::vector<std::string> contexts) const {
    const Error error = check_refusal_changes_nothing(
        [&] { return state(); },
        [&] {
          static_cast<void>(model.fragment(trusted, {.outputs = {y}, .commands = {command}}).prepare({.slots = 2}));
        });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
    CHECK(error.contexts() == contexts);
    accept();
  }
  void refuse_xor(std::variant<Grid, Workload> shape, std::vector<Argument> arguments,
                  const std::string& sentence) const {
    refuse(dispatch(test.xor_bytes, std::move(shape), std::move(arguments)), sentence,
           {"validating commands[0], dispatch of \"xor_bytes\""});
  }

  void accept() const {
    PreparedModel prepared =
        model.fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, y, kMask)}}).prepare();
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
    CHECK(infer(prepared, input) == xored(input, kMask));
  }

  /// As state(), for what a session does.
  void refuse_load(const KernelSpec& spec, const std::string& sentence) const {
    ModelSession session(test_device());
    const Error error =
        check_refusal_changes_nothing([&] { return state(); }, [&] { static_cast<void>(session.load(spec)); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
    CHECK(error.contexts() == std::vector<std::string>{"loading kernel \"" + spec.name() + "\""});
    // A refused kernel takes no index.
    CHECK(session.load(xor_bytes).id().index == 0);
  }
};

KernelSpec with_block(KernelSpec spec, Dim3 block) {
  spec.block = block;
  return spec;
}

}  // namespace

TEST_CASE("A wrong number of arguments is refused before the device hears of a graph", "[model][S33]") {
  const CountedModel m;
  m.refuse_xor(grid(1), {m.x, m.y, kCount}, "The call has 3 arguments; the kernel has 4 parameters.");
}

TEST_CASE("A wrong scalar width is refused before the device hears of a graph", "[model][S34]") {
  const CountedModel m;
  m.refuse_xor(grid(1), {m.x, m.y, std::uint32_t{64}, kMask},
               "The argument 2 (\"count\") has 4 bytes; the kernel was compiled for 8.");
}

TEST_CASE("A missing region is refused before the device hears of a graph", "[model][S33]") {
  const CountedModel m;
  m.refuse_xor(grid(1), {m.x, kCount, kCount, kMask},
               "The argument 1 (\"y\") is a scalar; the kernel takes a region there.");
}

TEST_CASE("A misaligned region is refused before the device hears of a graph", "[model]") {
  const CountedModel m;
  m.refuse(m.test.increment(grid(1), m.n.slice(2, 4), std::uint32_t{1}),
           "The argument 0 (\"x\") starts at byte 2 of its allocation; the kernel needs a multiple of 4.",
           {"validating commands[0], dispatch of \"increment\""});
}

TEST_CASE("A region beyond its allocation is refused before the device hears of a graph", "[model][S16][S29]") {
  const CountedModel m;
  Region beyond = m.y;
  beyond.offset = 1;
  m.refuse(m.test.xor_bytes(grid(1), m.x, beyond, kCount, kMask),
           "The region of 64 bytes at byte 1 passes the 64 bytes of allocation \"y\".",
           {"binding argument 1 (\"y\")", "validating commands[0], dispatch of \"xor_bytes\""});
}

TEST_CASE("A write to a weight is refused before the device hears of a graph", "[model][S30]") {
  const CountedModel m;
  m.refuse(m.test.xor_bytes(grid(1), m.x, m.w, kCount, kMask),
           "The kernel writes the weight \"w\", which is immutable.",
           {"binding argument 1 (\"y\")", "validating commands[0], dispatch of \"xor_bytes\""});
}

TEST_CASE("A grid beyond its limit is refused before the device hears of a graph", "[model]") {
  const CountedModel m;
  const std::vector<Argument> arguments{m.x, m.y, kCount, kMask};
  m.refuse_xor(grid(2147483648), arguments, "The grid's x is 2147483648; the device allows 2147483647.");
  m.refuse_xor(grid(1, 65536), arguments, "The grid's y is 65536; the device allows 65535.");
  m.refuse_xor(grid(1, 1, 65536), arguments, "The grid's z is 65536; the device allows 65535.");
}

TEST_CASE("Shared memory beyond the opt-in is refused before the device hears of a graph", "[model]") {
  const CountedModel m;
  const std::uint64_t limit = m.counting->limits().max_shared_bytes;
  m.refuse(dispatch(m.shared_by_rule, workload(limit + 1), {m.x, m.y, kCount, kMask}),
           "The launch needs " + std::to_string(limit + 1) +
               " bytes of dynamic shared memory beside 0 static ones; the device allows " + std::to_string(limit) +
               " together.",
           {"validating commands[0], dispatch of \"xor_bytes\""});
}

TEST_CASE("Parameters beyond the device's limit are refused last and before the device hears of a graph",
          "[model][S36]") {
  const CountedModel m([](DeviceLimits& limits) { limits.max_parameter_bytes = 24; });
  const auto check_refused = [&](const Command& command, const std::string& sentence) {
    const Error error = check_refusal_changes_nothing(
        [&] { return m.state(); },
        [&] { static_cast<void>(m.model.fragment(trusted, {.commands = {command}}).prepare()); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
  };
  const std::vector<Argument> arguments{m.x, m.y, kCount, kMask};
  check_refused(dispatch(m.shared_by_rule, workload(1u << 20), arguments),
                "The launch needs 1048576 bytes of dynamic shared memory beside 0 static ones; the device allows " +
                    std::to_string(m.counting->limits().max_shared_bytes) + " together.");
  check_refused(dispatch(m.test.xor_bytes, grid(1), arguments), "The parameters have 25 bytes; the device takes 24.");
  PreparedModel prepared =
      m.model.fragment(trusted, {.outputs = {m.n}, .commands = {m.test.increment(grid(1), m.n, std::uint32_t{5})}})
          .prepare();
  Inference run = submit(prepared, {});
  REQUIRE(run.wait(in_a_minute()));
  CHECK(run.output(m.n)[0] == 5);
}

TEST_CASE("A block that the kernel was not compiled for is refused when it is loaded", "[model][S37][S38]") {
  const CountedModel m;
  m.refuse_load(with_block(own::copy_spec(), {512, 1, 1}),
                "The block has 512 threads; the kernel is compiled for at most 256.");
  m.refuse_load(with_block(xor_bytes_spec(), {1025, 1, 1}), "The block's x is 1025; it must be between 1 and 1024.");
  m.refuse_load(with_block(xor_bytes_spec(), {1, 1, 65}), "The block's z is 65; it must be between 1 and 64.");
  m.refuse_load(with_block(xor_bytes_spec(), {32, 33, 1}), "The block has 1056 threads; the device allows 1024.");
  m.refuse_load(with_block(xor_bytes_spec(), {1, 0, 1}), "The block's y is 0; it must be between 1 and 1024.");
}

TEST_CASE("An alignment that is no power of two or that no storage has is refused when it is loaded", "[model][S32]") {
  const CountedModel m;
  for (const ParameterKind kind : {ParameterKind::binding, ParameterKind::bytes}) {
    KernelSpec spec = xor_bytes_spec();
    spec.parameters[0].kind = kind;
    for (const std::uint32_t alignment : {3u, 24u}) {
      spec.parameters[0].alignment = alignment;
      m.refuse_load(spec, "The alignment of parameter 0 (\"x\") is " + std::to_string(alignment) +
                              " bytes, which is not a power of two.");
    }
    spec.parameters[0].alignment = 512;
    m.refuse_load(spec,
                  "The alignment of parameter 0 (\"x\") is 512 bytes; weft's storage starts at multiples of 256.");
    spec.parameters[0].alignment = 0;
    spec.parameters[0].element_size = 0;
    m.refuse_load(spec, "The alignment of parameter 0 (\"x\") is 0 bytes, which is not a power of two.");
    spec.parameters[0].alignment = 256;
    CHECK(ModelSession(test_device()).load(spec).index == 0);
  }
}

TEST_CASE("A number that is no enumerator is refused wherever it stands", "[model]") {
  const CountedModel m;
  const auto check_refused = [&](const auto& call, const std::string& sentence) {
    const Error error = check_refusal_changes_nothing([&] { return m.state(); }, call);
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
  };
  const auto nowhere = static_cast<Placement>(7);
  ModelSession session(test_device());
  check_refused([&] { static_cast<void>(session.allocate(8, {.label = "a", .placement = nowhere})); },
                "The placement of the allocation \"a\" is 7, which is none.");
  CHECK(session.allocate(8).allocation == 0);
  Graph graph(m.test.context);
  check_refused([&] { static_cast<void>(graph.tensor<float>({2}, {.label = "t", .placement = nowhere})); },
                "The placement of the tensor \"t\" is 7, which is none.");

  KernelSpec spec = increment_spec();
  spec.parameters[0].access = static_cast<Access>(3);
  m.refuse_load(spec, "The access of parameter 0 (\"x\") is 3, which is none.");
  spec = increment_spec();
  spec.parameters[1].kind = static_cast<ParameterKind>(4);
  m.refuse_load(spec, "The kind of parameter 1 (\"amount\") is 4, which is none.");

  m.refuse(dispatch(m.test.xor_bytes, grid(1), {Binding{m.x, static_cast<Access>(3)}, m.y, kCount, kMask}),
           "The argument 0 (\"x\") is bound as unknown; the kernel's spec says read.",
           {"validating commands[0], dispatch of \"xor_bytes\""});

  const ModelFragment fragment = m.model.fragment(trusted, {.commands = {fill(m.x, 1)}});
  const auto refuse_options = [&](PrepareOptions options, const std::string& sentence) {
    check_refused([&] { static_cast<void>(fragment.prepare(std::move(options))); }, sentence);
  };
  refuse_options({.copies = static_cast<CopyMethod>(3)}, "The copy method is 3, which is none.");
  refuse_options({.order = static_cast<Order>(2)}, "The order is 2, which is none.");
  refuse_options({.forms = {{}, {.inputs = static_cast<Side>(2)}}},
                 "The side of the inputs of request form 1 is 2, which is none.");
  refuse_options({.forms = {{.outputs = static_cast<Side>(9)}}},
                 "The side of the outputs of request form 0 is 9, which is none.");
  m.accept();
}

TEST_CASE("A pool of no slots or of no commands is refused and changes nothing", "[model][S44][S45]") {
  const CountedModel m;
  const auto check_refused = [&](std::vector<Command> commands, std::uint32_t slots, const std::string& sentence) {
    const Error error = check_refusal_changes_nothing(
        [&] { return m.state(); },
        [&] {
          static_cast<void>(
              m.model.fragment(trusted, {.commands = std::move(commands), .label = "few"}).prepare({.slots = slots}));
        });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
    m.accept();
  };
  check_refused({fill(m.x, 1)}, 0, "A prepared model has at least 1 slot; 0 are asked for.");
  check_refused({}, 1, "The graph \"few\" has no commands.");
}

TEST_CASE("A node that the device does not take leaves nothing submitted", "[model][B8][S49]") {
  constexpr std::uint32_t kDispatches = 1000;
  const auto prepare = [](TestSession& test) {
    const auto x = test.session.allocate<std::uint32_t>({1}, {.label = "x"});
    std::vector<Command> commands(kDispatches, test.increment(grid(1), x, std::uint32_t{1}));
    return test.freeze().fragment(trusted, {.outputs = {x}, .commands = std::move(commands)});
  };
  for (const std::uint64_t call : {std::uint64_t{0}, std::uint64_t{kDispatches / 2}, std::uint64_t{kDispatches - 1}}) {
    INFO("node " << call);
    const auto failing =
        std::make_shared<FailingDevice>(open_device(test_device()), Verb::add_node, call, StatusCode::out_of_memory);
    const auto counting = std::make_shared<CountingDevice>(failing);
    const ScopedDevice scoped(test_device(), counting);
    TestSession test;
    const ModelFragment fragment = prepare(test);
    const Error error = refusal([&] { static_cast<void>(fragment.prepare()); });
    CHECK(error.code() == ErrorCode::out_of_memory);
    CHECK(counting->count(Verb::add_node) == call + 1);
    CHECK(counting->count(Verb::instantiate) == 0);
    CHECK(counting->count(Verb::launch) == 0);
    CHECK(counting->count(Verb::create_graph) == counting->count(Verb::destroy_graph));
    const MemoryStatistics memory = test.context.memory();
    CHECK(memory.requested.live_bytes == 0);
    CHECK(memory.reserved.live_bytes == 0);
    CHECK(memory.staging.live_bytes == 0);

    PreparedModel prepared = fragment.prepare();
    Inference run = submit(prepared, {});
    REQUIRE(run.wait(in_a_minute()));
    CHECK(run.output<std::uint32_t>(0)[0] == kDispatches);
  }
}

}  // namespace weft::test
