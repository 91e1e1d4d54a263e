#include "catch.h"
#include "device/faults.h"
#include "device/registry.h"
#include "device/trace_device.h"
#include "support/device.h"
#include "support/requests.h"
#include <weft/error.h>
#include <weft/kernels.h>
#include <weft/weft.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

// What weft asks of the device, call by call, held against tests/traces. The files come from a GPU, so that the host
// device is known to be asked for the same. Scenarios take one thread, and end before anything is given back whose
// moment depends on how fast the device is.

namespace weft::test {
namespace {

using Lines = std::vector<std::string>;

constexpr std::uint64_t kCount = 64;

Lines read_lines(const std::filesystem::path& path) {
  Lines lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

void write_lines(const std::filesystem::path& path, const Lines& lines) {
  std::ofstream file(path);
  for (const std::string& line : lines) file << line << '\n';
  REQUIRE(file.good());
}

// Memory, code and streams are given back once a stream has drained, so their place among the calls is a matter of
// time.
bool is_given_back(const std::string& line) {
  constexpr std::array kVerbs{"free ", "free_pinned ", "unload ", "destroy_stream "};
  return std::ranges::any_of(kVerbs, [&](const char* verb) { return line.starts_with(verb); });
}

/// Runs the scenario and holds the calls that it returns against the stored ones, or stores them where
/// WEFT_WRITE_TRACES names a folder.
void check_trace(const std::string& name, const std::function<Lines(TracingDevice&)>& scenario,
                 std::shared_ptr<DeviceApi> device = open_device(test_device())) {
  const auto tracing = std::make_shared<TracingDevice>(std::move(device));
  Lines lines;
  {
    const ScopedDevice scoped(test_device(), tracing);
    lines = scenario(*tracing);
  }
  std::erase_if(lines, is_given_back);
  const std::string file = name + ".trace";
  if (const char* folder = std::getenv("WEFT_WRITE_TRACES"); folder != nullptr) {
    write_lines(std::filesystem::path(folder) / file, lines);
    return;
  }
  const std::filesystem::path stored = std::filesystem::path(WEFT_TEST_DATA).parent_path() / "traces" / file;
  INFO("stored in " << stored << "; tests/traces/README.md says how to write it anew");
  const Lines expected = read_lines(stored);
  CHECK(lines.size() == expected.size());
  for (std::size_t i = 0; i < std::min(lines.size(), expected.size()); ++i) {
    INFO("line " << i + 1);
    REQUIRE(lines[i] == expected[i]);
  }
}

void serve(PreparedModel& prepared, int requests) {
  for (int i = 0; i < requests; ++i) {
    Inference run = std::move(prepared.acquire(in_a_minute()).value()).submit();
    REQUIRE(run.wait(in_a_minute()));
  }
}

/// One request in each form that the model is prepared for.
void serve_forms(PreparedModel& prepared, const std::vector<RequestForm>& forms) {
  for (const RequestForm form : forms) {
    std::vector<DeviceTensor> inputs;
    if (form.inputs == Side::device) inputs.push_back(ready(prepared.context(), fresh_bytes(kCount, 1)));
    ModelSlot slot = prepared.acquire(in_a_minute()).value();
    const SubmitOptions options{.outputs = form.outputs};
    Inference run =
        form.inputs == Side::device ? std::move(slot).submit(inputs, options) : std::move(slot).submit(options);
    REQUIRE(run.wait(in_a_minute()));
  }
}

/// y = x ^ mask for graphs that a factory makes.
ModelFragment xor_fragment(const Context& context, std::uint8_t mask) {
  TestSession test(context);
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto h = test.session.allocate<std::uint8_t>({kCount}, {.label = "h"});
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  return test.freeze().fragment(
      trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, h, mask), test.xor_of(h, y, 0)}});
}

/// Encoder and head as in the digits demo, joined in one graph.
PreparedModel joined_digits(const Context& context) {
  ModelSession session(context.device());
  const auto linear_relu = session.load(kernels::linear_relu);
  const auto linear_split = session.load(kernels::linear_split);
  const auto weight = [&](Shape shape, const char* label) {
    const TensorDesc desc(DType::f32, std::move(shape));
    const std::vector<std::byte> zeros(desc.bytes());
    return session.weight<float>({desc, zeros, label});
  };
  const auto w1 = weight({24, 16}, "fc1.weight");
  const auto b1 = weight({24}, "fc1.bias");
  const auto w2 = weight({10, 24}, "fc2.weight");
  const auto b2 = weight({10}, "fc2.bias");
  const auto x = session.allocate<float>({8, 16}, {.label = "x"});
  const auto h = session.allocate<float>({8, 24}, {.label = "h"});
  const auto g = session.allocate<float>({8, 24}, {.label = "g"});
  const auto y = session.allocate<float>({8, 10}, {.label = "y"});
  const ModelDefinition model = std::move(session).freeze(context);
  const ModelFragment encoder =
      model.fragment(trusted, {.inputs = {x},
                               .outputs = {h},
                               .commands = {linear_relu(workload(8, 24), x, w1, b1, h, 8u, 16u, 24u).label("fc1")},
                               .label = "encoder"});
  const ModelFragment head = model.fragment(
      trusted, {.inputs = {g},
                .outputs = {y},
                .commands = {fill(y, 0), linear_split(workload(8, 10, 4), g, w2, b2, y, 8u, 24u, 10u, 4u).label("fc2")},
                .label = "head"});
  return PreparedModel::prepare(context, [&](Context& home) {
    Graph graph(home, "digits");
    const DeviceTensor images = graph.tensor<float>({8, 16}, {.label = "images"});
    std::vector<DeviceTensor> logits = head.record(graph, encoder.record(graph, {images}));
    return InferenceGraph{std::move(graph), {images}, std::move(logits)};
  });
}

}  // namespace

TEST_CASE("Trace of opening a device and loading a model", "[model][trace]") {
  check_trace("open_and_load", [](TracingDevice& device) {
    TestSession test;
    static_cast<void>(test.weight(fresh_bytes(kCount, 1)));
    const ModelDefinition model = test.freeze();
    return device.lines();
  });
}

TEST_CASE("Trace of a model of one fill", "[model][trace]") {
  check_trace("one_fill", [](TracingDevice& device) {
    TestSession test;
    const auto y = test.session.allocate<std::uint8_t>({kCount});
    PreparedModel prepared = test.freeze().fragment(trusted, {.outputs = {y}, .commands = {fill(y, 7)}}).prepare();
    serve(prepared, 1);
    return device.lines();
  });
}

TEST_CASE("Trace of a chain", "[model][trace]") {
  check_trace("chain", [](TracingDevice& device) {
    const XorModel model(kCount);
    PreparedModel prepared = model.fragment.prepare();
    serve(prepared, 2);
    return device.lines();
  });
}

TEST_CASE("Trace of two fragments in one graph", "[model][trace]") {
  check_trace("joined_fragments", [](TracingDevice& device) {
    PreparedModel prepared = joined_digits(Context::open(test_device()));
    serve(prepared, 2);
    return device.lines();
  });
}

TEST_CASE("Trace of two slots", "[model][trace]") {
  check_trace("two_slots", [](TracingDevice& device) {
    const XorModel model(kCount);
    PreparedModel prepared = model.fragment.prepare({.slots = 2});
    serve(prepared, 3);
    return device.lines();
  });
}

TEST_CASE("Trace of a model in place", "[model][trace]") {
  check_trace("in_place", [](TracingDevice& device) {
    TestSession test;
    const auto x = test.session.allocate<std::uint32_t>({1});
    PreparedModel prepared =
        test.freeze()
            .fragment(trusted,
                      {.inputs = {x}, .outputs = {x}, .commands = {test.increment(grid(1), x, std::uint32_t{5})}})
            .prepare();
    serve(prepared, 1);
    return device.lines();
  });
}

TEST_CASE("Trace of copies by engines", "[model][trace]") {
  check_trace("engine_copies", [](TracingDevice& device) {
    const XorModel model(kCount);
    PreparedModel prepared = model.fragment.prepare({.copies = CopyMethod::engine});
    serve(prepared, 1);
    return device.lines();
  });
}

TEST_CASE("Trace of two outputs with the completion behind both", "[model][trace]") {
  check_trace("two_outputs", [](TracingDevice& device) {
    TestSession test;
    const auto x = test.session.allocate<std::uint8_t>({kCount});
    const auto y = test.session.allocate<std::uint8_t>({kCount});
    const auto z = test.session.allocate<std::uint8_t>({kCount});
    PreparedModel prepared =
        test.freeze()
            .fragment(trusted,
                      {.inputs = {x}, .outputs = {y, z}, .commands = {test.xor_of(x, y, 1), test.xor_of(x, z, 2)}})
            .prepare();
    serve(prepared, 1);
    return device.lines();
  });
}

TEST_CASE("Trace of allocations apart and shared scratch", "[model][trace]") {
  check_trace("separate_allocations", [](TracingDevice& device) {
    TestSession test;
    const auto x = test.session.allocate<std::uint8_t>({kCount}, {.placement = Placement::shared});
    const auto y = test.session.allocate<std::uint8_t>({kCount});
    PreparedModel prepared = test.freeze()
                                 .fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, y, 1)}})
                                 .prepare({.separate_allocations = true});
    serve(prepared, 1);
    return device.lines();
  });
}

TEST_CASE("Trace of a prepare that fails at its second slot", "[model][trace]") {
  // The weight of the model is none, so that the second allocation is the second slot's.
  check_trace(
      "failed_prepare",
      [](TracingDevice& device) {
        {
          const XorModel model(kCount);
          CHECK_THROWS_AS(static_cast<void>(model.fragment.prepare({.slots = 2})), Error);
        }
        return device.lines();
      },
      std::make_shared<FailingDevice>(open_device(test_device()), Verb::allocate, 1, StatusCode::out_of_memory));
}

TEST_CASE("Trace of a pool dropped with its run in flight", "[model][trace]") {
  check_trace("submit_and_drop", [](TracingDevice& device) {
    {
      const XorModel model(kCount);
      PreparedModel prepared = model.fragment.prepare();
      const Inference run = std::move(prepared.acquire(in_a_minute()).value()).submit();
    }
    return device.lines();
  });
}

TEST_CASE("Trace of device inputs", "[model][trace]") {
  check_trace("device_inputs", [](TracingDevice& device) {
    const XorModel model(kCount);
    PreparedModel prepared = model.fragment.prepare({.forms = {kDeviceHost}});
    serve_forms(prepared, {kDeviceHost, kDeviceHost});
    return device.lines();
  });
}

TEST_CASE("Trace of device outputs and of a caller's tensor", "[model][trace]") {
  check_trace("device_outputs", [](TracingDevice& device) {
    const XorModel model(kCount);
    PreparedModel prepared = model.fragment.prepare({.forms = {kHostDevice}});
    serve_forms(prepared, {kHostDevice});
    const DeviceTensor into = ready(prepared.context(), fresh_bytes(kCount, 1));
    Inference run = start(prepared, kHostDevice, fresh_bytes(kCount, 2), {into});
    REQUIRE(run.wait(in_a_minute()));
    return device.lines();
  });
}

TEST_CASE("Trace of two slots in all forms", "[model][trace]") {
  check_trace("all_forms", [](TracingDevice& device) {
    const XorModel model(kCount);
    PreparedModel prepared = model.fragment.prepare({.slots = 2, .forms = all_forms()});
    serve_forms(prepared, all_forms());
    return device.lines();
  });
}

TEST_CASE("Trace of two pools chained by a tensor", "[model][trace]") {
  check_trace("chained_pools", [](TracingDevice& device) {
    const XorModel model(kCount);
    PreparedModel first = model.fragment.prepare({.forms = {kHostDevice}});
    PreparedModel second = model.fragment.prepare({.forms = {kDeviceDevice}});
    Inference run = start(first, kHostDevice, fresh_bytes(kCount, 1));
    REQUIRE(run.wait(in_a_minute()));
    Inference next = second.try_acquire().value().submit({run.tensor(0)});
    REQUIRE(next.wait(in_a_minute()));
    return device.lines();
  });
}

TEST_CASE("Trace of shared inputs and outputs in place", "[model][trace]") {
  check_trace("shared_in_place", [](TracingDevice& device) {
    TestSession test;
    const auto x = test.session.allocate<std::uint8_t>({kCount}, {.placement = Placement::shared});
    const auto y = test.session.allocate<std::uint8_t>({kCount}, {.placement = Placement::shared});
    PreparedModel prepared =
        test.freeze().fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, y, 1)}}).prepare();
    serve(prepared, 2);
    return device.lines();
  });
}

TEST_CASE("Trace of fragments that share scratch", "[model][trace]") {
  check_trace("reused_scratch", [](TracingDevice& device) {
    const Context context = Context::open(test_device());
    const ModelFragment fragment = xor_fragment(context, 1).reuse_private_scratch(trusted);
    PreparedModel prepared = PreparedModel::prepare(context, [&](Context& home) {
      Graph graph(home, "reuse");
      const DeviceTensor x = graph.tensor<std::uint8_t>({kCount});
      std::vector<DeviceTensor> outputs = fragment.record(graph, fragment.record(graph, {x}));
      return InferenceGraph{std::move(graph), {x}, std::move(outputs)};
    });
    serve(prepared, 1);
    return device.lines();
  });
}

TEST_CASE("Trace of a graph over memory outside it and of its own copies", "[model][trace]") {
  check_trace("memory_tensors", [](TracingDevice& device) {
    const Context context = Context::open(test_device());
    const ModelFragment fragment = xor_fragment(context, 1);
    const DeviceTensor source = ready(context, fresh_bytes(kCount, 1));
    const DeviceTensor target = ready(context, fresh_bytes(kCount, 2));
    PreparedModel prepared = PreparedModel::prepare(context, [&](Context& home) {
      Graph graph(home, "memory");
      const DeviceTensor bound = graph.bind(target);
      graph.fill(bound, 7);
      graph.copy(fragment.record(graph, {source})[0], bound);
      return InferenceGraph{std::move(graph), {}, {}};
    });
    serve(prepared, 2);
    return device.lines();
  });
}

TEST_CASE("Trace of a factory's slots of which one has another topology", "[model][trace]") {
  check_trace("odd_slot", [](TracingDevice& device) {
    const Context context = Context::open(test_device());
    const ModelFragment fragment = xor_fragment(context, 1);
    std::uint32_t slot = 0;
    PreparedModel prepared = PreparedModel::prepare(context,
                                                    [&](Context& home) {
                                                      Graph graph(home, "stages");
                                                      const DeviceTensor x = graph.tensor<std::uint8_t>({kCount});
                                                      std::vector<DeviceTensor> tensors = fragment.record(graph, {x});
                                                      if (slot++ == 1) tensors = fragment.record(graph, tensors);
                                                      return InferenceGraph{std::move(graph), {x}, std::move(tensors)};
                                                    },
                                                    {.slots = 3});
    serve(prepared, 3);
    return device.lines();
  });
}

TEST_CASE("Trace of a prepare that fails to set a node of its second slot", "[model][trace]") {
  check_trace(
      "failed_node_set",
      [](TracingDevice& device) {
        {
          const XorModel model(kCount);
          CHECK_THROWS_AS(static_cast<void>(model.fragment.prepare({.slots = 2})), Error);
        }
        return device.lines();
      },
      std::make_shared<FailingDevice>(open_device(test_device()), Verb::set_node, 2, StatusCode::out_of_memory));
}

}  // namespace weft::test
