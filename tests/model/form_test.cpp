#include "catch.h"
#include "device/faults.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_state.h"
#include "support/requests.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

// Requests whose tensors are on the host or on the device, in one pool.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

/// A pool of one slot on a device whose calls are counted.
struct CountedPool {
  explicit CountedPool(std::vector<RequestForm> forms, std::uint64_t bytes = kCount)
      : model(bytes), pool(model.fragment.prepare({.forms = std::move(forms)})) {}

  [[nodiscard]] Context context() const { return model.fragment.context(); }
  [[nodiscard]] ModelSlot slot() { return pool.acquire(in_a_minute()).value(); }

  std::shared_ptr<CountingDevice> counting = std::make_shared<CountingDevice>(open_device(test_device()));
  ScopedDevice scoped{test_device(), counting};
  XorModel model;
  PreparedModel pool;
};

/// A request that is to be refused: before it reaches the device, and with the slot as it was.
struct FormRefusals : CountedPool {
  FormRefusals() : CountedPool(all_forms()) {}

  template <class Submit>
  void refuse(const Submit& submit, const std::string& sentence, const std::string& where = {}) {
    INFO(sentence);
    ModelSlot taken = slot();
    const Error error = check_refusal_changes_nothing(
        [&] { return ModelState(context(), pool).with("launches", counting->count(Verb::launch)); },
        [&] { static_cast<void>(submit(std::move(taken))); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
    CHECK(error.contexts() == (where.empty() ? std::vector<std::string>{}
                                             : std::vector<std::string>{where, "running graph \"xor\" in slot 0"}));
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, 5);
    Inference run = std::move(taken).submit({ready(context(), input)}, {.outputs = Side::host});
    CHECK(result(run) == xored(input, 0xff));
  }
};

std::vector<std::span<const std::byte>> spans(const std::vector<std::vector<std::uint8_t>>& inputs) {
  std::vector<std::span<const std::byte>> result;
  for (const std::vector<std::uint8_t>& input : inputs) result.push_back(std::as_bytes(std::span(input)));
  return result;
}

/// y = x ^ 1 and z = x ^ 2.
struct TwoOutputs {
  explicit TwoOutputs(PrepareOptions options) : pool(fragment.prepare(std::move(options))) {}

  TestSession test;
  TypedRegion<std::uint8_t> x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  TypedRegion<std::uint8_t> y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  TypedRegion<std::uint8_t> z = test.session.allocate<std::uint8_t>({kCount}, {.label = "z"});
  ModelFragment fragment = test.freeze().fragment(
      trusted, {.inputs = {x}, .outputs = {y, z}, .commands = {test.xor_of(x, y, 1), test.xor_of(x, z, 2)}});
  PreparedModel pool;
};

}  // namespace

TEST_CASE("All four forms serve from one slot and each request is one launch", "[model][R24][R30][T4]") {
  for (const std::uint64_t bytes : {1u, 3u, 17u, 255u, 4096u, 4099u, 70001u}) {
    INFO(bytes << " bytes");
    CountedPool counted(all_forms(), bytes);
    for (const RequestForm form : all_forms()) {
      const std::vector<std::uint8_t> input = fresh_bytes(bytes, bytes + static_cast<unsigned>(form.inputs));
      ModelSlot slot = counted.slot();
      std::vector<DeviceTensor> tensors;
      if (form.inputs == Side::device) {
        tensors = {ready(counted.context(), input)};
      } else {
        std::ranges::copy(input, slot.input(counted.model.x).begin());
      }
      counted.counting->reset();
      Inference run = form.inputs == Side::device ? std::move(slot).submit(tensors, {.outputs = form.outputs})
                                                  : std::move(slot).submit({.outputs = form.outputs});
      CHECK(counted.counting->count(Verb::launch) == 1);
      CHECK(counted.counting->total() == 1);
      CHECK(answer(run, form) == xored(input, 0xff));
    }
  }
}

TEST_CASE("Requests of all forms follow one another on a few slots in any order", "[model][R24][R28]") {
  const XorModel model(kCount);
  PreparedModel pool = model.fragment.prepare({.slots = 3, .forms = all_forms()});
  constexpr std::uint32_t kSeed = 21;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  struct Request {
    std::vector<std::uint8_t> input;
    RequestForm form;
    Inference run;
  };
  std::vector<Request> requests;
  for (std::uint32_t i = 0; i < 300; ++i) {
    std::vector<std::uint8_t> input = fresh_bytes(kCount, i);
    const RequestForm form = all_forms()[random() % 4];
    Inference run = start(pool, form, input);
    requests.push_back({std::move(input), form, std::move(run)});
    if (requests.size() < 3) continue;
    const auto taken = requests.begin() + static_cast<std::ptrdiff_t>(random() % 3);
    CHECK(answer(taken->run, taken->form) == xored(taken->input, 0xff));
    requests.erase(taken);
  }
}

TEST_CASE("Each form has nodes of its own and all of them one memory", "[model][R30]") {
  const XorModel model(kCount);
  const PreparedModel host = model.fragment.prepare();
  const std::uint64_t requested = model.fragment.context().memory().requested.live_bytes;
  const PreparedModel all = model.fragment.prepare({.forms = all_forms()});
  CHECK(model.fragment.context().memory().requested.live_bytes == 2 * requested);
  for (std::size_t form = 0; form < 4; ++form) {
    INFO("form " << form);
    const NodeCounts counts = all.node_counts(0, form);
    CHECK(counts.memset_nodes == 0);
    CHECK(counts.kernel_nodes == 2);
    CHECK(counts.own_nodes == 2);  // The copy out carries the completion.
    CHECK(all.topology(form).requested_bytes == host.topology().requested_bytes);
  }
  const auto check_refused = [](const auto& call) {
    const Error error = refusal(call);
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == "There is no request form 4; the model is prepared for 4.");
  };
  check_refused([&] { static_cast<void>(all.topology(4)); });
  check_refused([&] { static_cast<void>(all.node_counts(0, 4)); });
}

TEST_CASE("No forms or one listed twice are refused before anything is allocated", "[model]") {
  const XorModel model(kCount);
  const auto check_refused = [&](std::vector<RequestForm> forms, const char* sentence) {
    const Error error =
        check_refusal_changes_nothing([&] { return ModelState(model.fragment.context()); },
                                      [&] { static_cast<void>(model.fragment.prepare({.forms = forms})); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
  };
  check_refused({}, "A prepared model has at least 1 request form; none is listed.");
  check_refused({kHostHost, kDeviceHost, kHostHost}, "The request forms 0 and 2 are the same.");
}

TEST_CASE("A request in a form that is not listed is refused and the slot serves a listed one", "[model]") {
  const auto check_refused = [](RequestForm listed, RequestForm asked, const char* sentence) {
    CountedPool counted({listed});
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
    ModelSlot slot = counted.slot();
    const DeviceTensor tensor = ready(counted.context(), input);
    const Error error = check_refusal_changes_nothing(
        [&] { return ModelState(counted.context(), counted.pool).with("calls", counted.counting->total()); },
        [&] {
          static_cast<void>(asked.inputs == Side::device ? std::move(slot).submit({tensor}, {.outputs = asked.outputs})
                                                         : std::move(slot).submit({.outputs = asked.outputs}));
        });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
    if (listed.inputs == Side::host) std::ranges::copy(input, slot.input(counted.model.x).begin());
    Inference run = listed.inputs == Side::device ? std::move(slot).submit({tensor}) : std::move(slot).submit();
    CHECK(answer(run, listed) == xored(input, 0xff));
  };
  check_refused(kHostHost, kDeviceHost,
                "The model is not prepared for device inputs with host outputs; PrepareOptions::forms lists what it is "
                "prepared for.");
  check_refused(kDeviceDevice, kDeviceHost,
                "The model is not prepared for device inputs with host outputs; PrepareOptions::forms lists what it is "
                "prepared for.");
  check_refused(kDeviceHost, kHostDevice,
                "The model is not prepared for host inputs with device outputs; PrepareOptions::forms lists what it is "
                "prepared for.");
}

TEST_CASE("Without a word on outputs a request takes the first listed form of its inputs", "[model]") {
  const XorModel model(kCount);
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  for (const auto& [first, second] : {std::pair(kDeviceDevice, kDeviceHost), std::pair(kDeviceHost, kDeviceDevice)}) {
    PreparedModel pool = model.fragment.prepare({.forms = {kHostHost, first, second}});
    Inference run = pool.try_acquire().value().submit({ready(pool.context(), input)});
    CHECK(answer(run, first) == xored(input, 0xff));
  }
}

TEST_CASE("Tensors that do not fit a request are refused and the slot stays usable", "[model][R24]") {
  FormRefusals m;
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  const DeviceTensor good = ready(m.context(), input);
  const Context elsewhere = Context::open(test_device());
  const DeviceTensor foreign = ready(elsewhere, input);
  Graph graph(m.context());
  const DeviceTensor of_graph = graph.tensor(good.desc(), {.label = "g"});
  const DeviceTensor empty = m.context().tensor(bytes_desc(0));
  const auto submit = [&](std::vector<DeviceTensor> inputs) {
    return [&, inputs](ModelSlot&& slot) { return std::move(slot).submit(inputs); };
  };
  m.refuse(submit({}), "0 tensors are given; the model has 1.");
  m.refuse(submit({good, good}), "2 tensors are given; the model has 1.");
  m.refuse(submit({good.view(bytes_desc(63))}), "The tensor is u8[63]; the model's is u8[64].", "binding inputs[0]");
  m.refuse(submit({good.view({DType::i8, {kCount}})}), "The tensor is i8[64]; the model's is u8[64].",
           "binding inputs[0]");
  m.refuse(submit({good.view({DType::u8, {8, 8}})}), "The tensor is u8[8,8]; the model's is u8[64].",
           "binding inputs[0]");
  m.refuse(submit({empty}), "The tensor is u8[0]; the model's is u8[64].", "binding inputs[0]");
  m.refuse(submit({foreign}), "The tensor belongs to another context.", "binding inputs[0]");
  m.refuse(submit({of_graph}), "The tensor is of an unprepared graph; it has no bytes yet.", "binding inputs[0]");
}

TEST_CASE("Output tensors that do not fit a request are refused and the slot stays usable", "[model]") {
  FormRefusals m;
  const DeviceTensor good = ready(m.context(), fresh_bytes(kCount, 1));
  const Context elsewhere = Context::open(test_device());
  const DeviceTensor foreign = elsewhere.tensor(good.desc());
  Graph graph(m.context());
  const DeviceTensor of_graph = graph.tensor(good.desc());
  const auto submit = [&](std::vector<DeviceTensor> into, std::optional<Side> outputs = {}) {
    return [&, into, outputs](ModelSlot&& slot) {
      return std::move(slot).submit({good}, {.outputs = outputs, .into = into});
    };
  };
  m.refuse(submit({good}, Side::host), "Outputs on the host are not copied into tensors; state one of the two.");
  m.refuse(submit({good, good}), "2 output tensors are given; the model has 1.");
  m.refuse(submit({good.view(bytes_desc(8))}), "The tensor is u8[8]; the model's is u8[64].", "binding outputs[0]");
  m.refuse(submit({m.context().tensor(bytes_desc(0))}), "The tensor is u8[0]; the model's is u8[64].",
           "binding outputs[0]");
  m.refuse(submit({foreign}), "The tensor belongs to another context.", "binding outputs[0]");
  m.refuse(submit({of_graph}), "The tensor is of an unprepared graph; it has no bytes yet.", "binding outputs[0]");
}

TEST_CASE("Host bytes of another number or length than the inputs are refused and not written", "[model][R25]") {
  FormRefusals m;
  const auto submit = [&](const std::vector<std::vector<std::uint8_t>>& inputs) {
    return [inputs](ModelSlot&& slot) { return std::move(slot).submit_host(spans(inputs)); };
  };
  m.refuse(submit({}), "0 spans are given; the model has 1.");
  m.refuse(submit({fresh_bytes(kCount, 1), fresh_bytes(kCount, 2)}), "2 spans are given; the model has 1.");
  m.refuse(submit({fresh_bytes(kCount - 1, 1)}), "The span for input 0 has 63 bytes; the input u8[64] has 64.");
  m.refuse(submit({fresh_bytes(kCount + 1, 1)}), "The span for input 0 has 65 bytes; the input u8[64] has 64.");
  m.refuse(submit({{}}), "The span for input 0 has 0 bytes; the input u8[64] has 64.");
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 3);
  Inference run = m.slot().submit_host(spans({input}), {.outputs = Side::host});
  CHECK(result(run) == xored(input, 0xff));
}

TEST_CASE("A second span of another length leaves the first input as it was", "[model][R25]") {
  TestSession test;
  const auto a = test.session.allocate<std::uint8_t>({8}, {.label = "a"});
  const auto b = test.session.allocate<std::uint8_t>({8}, {.label = "b"});
  const auto y = test.session.allocate<std::uint8_t>({8}, {.label = "y"});
  PreparedModel pool =
      test.freeze().fragment(trusted, {.inputs = {a, b}, .outputs = {y}, .commands = {test.xor_of(a, y, 0)}}).prepare();
  ModelSlot slot = pool.try_acquire().value();
  std::ranges::fill(slot.input(a), std::uint8_t{7});
  CHECK(refusal([&] {
          static_cast<void>(std::move(slot).submit_host(spans({fresh_bytes(8, 1), fresh_bytes(9, 2)})));
        }).sentence() == "The span for input 1 has 9 bytes; the input u8[8] has 8.");
  CHECK(std::ranges::count(slot.input(a), std::uint8_t{7}) == 8);
}

TEST_CASE("A writer fills the inputs in place and gives the slot back when it throws", "[model][R26]") {
  CountedPool counted(all_forms());
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  counted.counting->reset();
  CHECK_THROWS_AS(static_cast<void>(counted.slot().submit_host_with([](ModelSlot& slot) {
                    slot.input<std::uint8_t>(0)[0] = 1;
                    throw std::runtime_error("no more rows");
                  })),
                  std::runtime_error);
  CHECK(counted.pool.is_idle());
  const Error error = refusal([&] {
    static_cast<void>(counted.slot().submit_host_with([](ModelSlot&) {}, {.into = {ready(counted.context(), {1, 2})}}));
  });
  CHECK(error.sentence() == "The tensor is u8[2]; the model's is u8[64].");
  CHECK(counted.pool.is_idle());
  Inference run = counted.slot().submit_host_with(
      [&](ModelSlot& slot) { std::ranges::copy(input, slot.input<std::uint8_t>(0).begin()); });
  CHECK(result(run) == xored(input, 0xff));
}

TEST_CASE("Overlapping and repeated device inputs are copied in list order", "[model][S24][R24]") {
  TestSession test;
  const Region memory = test.session.allocate(96, {.label = "m"});
  const TypedRegion<std::uint8_t> low{memory.slice(0, 64), TensorDesc(DType::u8, {64})};
  const TypedRegion<std::uint8_t> high{memory.slice(32, 64), TensorDesc(DType::u8, {64})};
  PreparedModel pool = test.freeze()
                           .fragment(trusted, {.inputs = {high, low, high, low},
                                               .outputs = {low, high},
                                               .commands = {fill(memory.slice(48, 1), 9)}})
                           .prepare({.forms = {kDeviceHost, kDeviceDevice}});
  // The copies of one group overlap nothing: each of the four is a group of its own.
  const Topology& topology = pool.topology();
  CHECK(std::ranges::count(topology.nodes, std::optional(OwnRole::copy_in), &TopologyNode::role) == 4);
  std::vector<DeviceTensor> inputs;
  for (std::uint8_t i = 1; i <= 4; ++i) inputs.push_back(ready(test.context, std::vector<std::uint8_t>(64, i)));
  for (int round = 0; round < 20; ++round) {
    Inference run = pool.acquire(in_a_minute()).value().submit(inputs);
    REQUIRE(run.wait(in_a_minute()));
    std::vector<std::uint8_t> expected(96, 4);
    std::fill(expected.begin() + 64, expected.end(), std::uint8_t{3});
    expected[48] = 9;
    CHECK(std::ranges::equal(run.output(low), std::span(expected).subspan(0, 64)));
    CHECK(std::ranges::equal(run.output(high), std::span(expected).subspan(32, 64)));
  }
}

TEST_CASE("One tensor may feed several inputs", "[model][R24]") {
  TestSession test;
  FragmentOptions options;
  for (std::size_t i = 0; i < 40; ++i) {
    options.inputs.push_back(test.session.allocate<std::uint8_t>({i + 1}));
    options.outputs.push_back(test.session.allocate<std::uint8_t>({i + 1}));
    options.commands.push_back(test.xor_of(options.inputs[i], options.outputs[i], static_cast<std::uint8_t>(i)));
  }
  PreparedModel pool = test.freeze().fragment(trusted, options).prepare({.forms = {kDeviceDevice}});
  const std::vector<std::uint8_t> bytes = fresh_bytes(100, 7);
  const DeviceTensor source = ready(test.context, bytes);
  std::vector<DeviceTensor> inputs;
  for (std::size_t i = 0; i < 40; ++i) inputs.push_back(source.view(bytes_desc(i + 1), i));
  Inference run = pool.try_acquire().value().submit(inputs);
  for (std::size_t i = 0; i < 40; ++i) {
    const auto first = bytes.begin() + static_cast<std::ptrdiff_t>(i);
    const std::vector<std::uint8_t> part(first, first + static_cast<std::ptrdiff_t>(i + 1));
    CHECK(values(run.tensor(i)) == xored(part, static_cast<std::uint8_t>(i)));
  }
}

TEST_CASE("Outputs go into the tensors that one request names and no later one", "[model]") {
  for (const RequestForm form : {kHostDevice, kDeviceDevice}) {
    TwoOutputs model({.forms = {form}});
    const DeviceTensor both = model.test.context.tensor(bytes_desc(2 * kCount + 9));
    const DeviceTensor y = both.view(bytes_desc(kCount), 1);
    const DeviceTensor z = both.view(bytes_desc(kCount), kCount + 3);
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
    std::vector<std::uint8_t> expected(2 * kCount + 9, 0);
    std::ranges::copy(xored(input, 1), expected.begin() + 1);
    std::ranges::copy(xored(input, 2), expected.begin() + kCount + 3);
    {
      Inference run = start(model.pool, form, input, {y, z});
      CHECK(run.tensor(0).desc() == y.desc());
      CHECK(values(run.tensor(1)) == xored(input, 2));
      CHECK(values(run.tensor(model.y)) == xored(input, 1));
    }
    CHECK(values(both) == expected);

    const std::vector<std::uint8_t> other = fresh_bytes(kCount, 2);
    Inference run = start(model.pool, form, other);
    CHECK(values(run.tensor(0)) == xored(other, 1));
    CHECK(values(run.tensor(1)) == xored(other, 2));
    CHECK(values(both) == expected);
  }
}

TEST_CASE("A request takes its input and puts its output in one tensor", "[model][R24]") {
  const XorModel model(kCount, 0x3c);
  PreparedModel pool = model.fragment.prepare({.slots = 2, .forms = {kDeviceDevice}});
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  const DeviceTensor tensor = ready(pool.context(), input);
  for (int round = 0; round < 7; ++round)
    static_cast<void>(pool.acquire(in_a_minute()).value().submit({tensor}, {.into = {tensor}}));
  CHECK(values(tensor) == xored(input, 0x3c));
  // Shifted by some bytes, too: the copy out follows all copies in.
  const DeviceTensor wide = ready(pool.context(), fresh_bytes(kCount + 5, 3));
  static_cast<void>(pool.acquire(in_a_minute())
                        .value()
                        .submit({wide.view(bytes_desc(kCount))}, {.into = {wide.view(bytes_desc(kCount), 5)}}));
  std::vector<std::uint8_t> expected = fresh_bytes(kCount + 5, 3);
  std::ranges::copy(xored({expected.begin(), expected.begin() + kCount}, 0x3c), expected.begin() + 5);
  CHECK(values(wide) == expected);
}

TEST_CASE("An output over an input that it does not need follows the input's copy", "[model][R24]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({4096}, {.label = "x"});
  const auto d = test.session.allocate<std::int64_t>({1}, {.label = "d"});
  const auto y = test.session.allocate<std::uint8_t>({4096}, {.label = "y"});
  PreparedModel pool =
      test.freeze()
          .fragment(trusted,
                    {.inputs = {x},
                     .outputs = {y, d},
                     .commands = {fill(y, 0xee), test.digest(grid(1), x, d, std::uint64_t{4096}, std::uint64_t{1})}})
          .prepare({.forms = {kDeviceDevice}, .order = Order::parallel});
  std::int64_t expected = 0;
  for (std::uint32_t round = 0; round < 10; ++round) {
    const std::vector<std::uint8_t> input = fresh_bytes(4096, round);
    const DeviceTensor tensor = ready(test.context, input);
    const DeviceTensor sum = test.context.tensor({DType::i64, {1}});
    Inference run = pool.acquire(in_a_minute()).value().submit({tensor}, {.into = {tensor, sum}});
    expected = digest_of(input, expected, 1);
    CHECK(values(tensor) == std::vector<std::uint8_t>(4096, 0xee));
    Readback readback = run.tensor(1).download();
    REQUIRE(readback.wait(in_a_minute()));
    CHECK(std::ranges::equal(readback.bytes(0), std::as_bytes(std::span(&expected, 1))));
  }
}

TEST_CASE("Output tensors that overlap are refused with both ranges", "[model]") {
  TwoOutputs model({.forms = {kDeviceDevice}});
  const DeviceTensor memory = upload(model.test.context, fresh_bytes(3 * kCount, 1), "m");
  const DeviceTensor input = ready(model.test.context, fresh_bytes(kCount, 2));
  ModelSlot slot = model.pool.try_acquire().value();
  const Error error = check_refusal_changes_nothing(
      [&] { return ModelState(model.test.context, model.pool); },
      [&] {
        static_cast<void>(std::move(slot).submit(
            {input}, {.into = {memory.view(bytes_desc(kCount), 60), memory.view(bytes_desc(kCount), 123)}}));
      });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() ==
        "The tensor is the bytes 123 to 187 of \"m\", of which the same run writes 60 to 124; nothing orders the two.");
  CHECK(error.contexts() == std::vector<std::string>{"binding outputs[1]", "running graph \"\" in slot 0"});
  CHECK(values(memory) == fresh_bytes(3 * kCount, 1));
  Inference run = std::move(slot).submit(
      {input}, {.into = {memory.view(bytes_desc(kCount), 60), memory.view(bytes_desc(kCount), 124)}});
  CHECK(values(run.tensor(0)) == xored(fresh_bytes(kCount, 2), 1));
  CHECK(values(run.tensor(1)) == xored(fresh_bytes(kCount, 2), 2));
}

TEST_CASE("Host outputs and device outputs of one pool are not mistaken for one another", "[model]") {
  const XorModel model(kCount);
  PreparedModel pool = model.fragment.prepare({.forms = all_forms()});
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  const auto check_refused = [](const auto& call, const char* sentence) {
    const Error error = refusal(call);
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
  };
  {
    Inference run = start(pool, kHostHost, input);
    REQUIRE(run.wait(in_a_minute()));
    check_refused([&] { static_cast<void>(run.tensor(0)); },
                  "The request was submitted with outputs on the host; output 0 is no tensor.");
    check_refused([&] { static_cast<void>(run.tensor(1)); }, "There is no output 1; the model has 1.");
  }
  Inference run = start(pool, kHostDevice, input);
  REQUIRE(run.wait(in_a_minute()));
  constexpr const char* kOnDevice =
      "The request was submitted with outputs on the device; output 0 has a tensor and no bytes on the host.";
  check_refused([&] { static_cast<void>(run.output<std::uint8_t>(0)); }, kOnDevice);
  check_refused([&] { static_cast<void>(std::move(run).download()); }, kOnDevice);
  check_refused([&] { static_cast<void>(run.tensor(1)); }, "There is no output 1; the model has 1.");
  CHECK(values(run.tensor(model.y)) == xored(input, 0xff));  // The refusals left it as it was.

  PreparedModel bare = model.fragment.prepare({.forms = {kDeviceDevice}});
  ModelSlot slot = bare.try_acquire().value();
  check_refused([&] { static_cast<void>(slot.input(model.x)); },
                "The input 0 stays in device memory: the model is not prepared for inputs on the host.");
  check_refused([&] { static_cast<void>(std::move(slot).submit_host(spans({input}))); },
                "The model is not prepared for host inputs; PrepareOptions::forms lists what it is prepared for.");
  Inference other = std::move(slot).submit({ready(pool.context(), input)});
  check_refused([&] { static_cast<void>(other.output(model.y)); },
                "The output 0 stays in device memory: the model is not prepared for outputs on the host.");
  CHECK(answer(other, kDeviceDevice) == xored(input, 0xff));
}

TEST_CASE("Models without inputs or without outputs serve in every form", "[model][S24][R25]") {
  for (const RequestForm form : all_forms()) {
    INFO("inputs " << static_cast<int>(form.inputs) << " outputs " << static_cast<int>(form.outputs));
    TestSession test;
    const auto n = test.session.allocate<std::uint8_t>({kCount}, {.label = "n"});
    const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
    const ModelDefinition model = test.freeze();
    PreparedModel source =
        model.fragment(trusted, {.outputs = {n}, .commands = {fill(n, 0xab)}}).prepare({.forms = {form}});
    Inference run = form.inputs == Side::device ? source.try_acquire().value().submit(std::vector<DeviceTensor>{})
                                                : source.try_acquire().value().submit();
    CHECK(answer(run, form) == std::vector<std::uint8_t>(kCount, 0xab));
    run = Inference(std::move(run));
    // Where there are no tensors it does not matter where they are.
    PreparedModel other =
        model.fragment(trusted, {.outputs = {n}, .commands = {fill(n, 1)}}).prepare({.forms = {form}});
    Inference either = form.inputs == Side::device ? other.try_acquire().value().submit()
                                                   : other.try_acquire().value().submit(std::vector<DeviceTensor>{});
    CHECK(answer(either, form) == std::vector<std::uint8_t>(kCount, 1));

    PreparedModel sink =
        model.fragment(trusted, {.inputs = {x}, .commands = {test.xor_of(x, n, 1)}}).prepare({.forms = {form}});
    for (int i = 0; i < 3; ++i) {
      Inference drained = start(sink, form, fresh_bytes(kCount, 1));
      CHECK(drained.wait(in_a_minute()));
      CHECK(refusal([&] { static_cast<void>(drained.tensor(0)); }).sentence() ==
            "There is no output 0; the model has 0.");
    }
    CHECK(std::move(start(sink, form, fresh_bytes(kCount, 1))).download().size() == 0);
  }
}

TEST_CASE("Shared inputs and outputs are used in place in every form", "[model][R25][R29][T7][T8][B12]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({32}, {.label = "x", .placement = Placement::shared});
  const auto h = test.session.allocate<std::uint8_t>({16}, {.label = "h", .placement = Placement::shared});
  const auto y = test.session.allocate<std::uint8_t>({32}, {.label = "y", .placement = Placement::shared});
  PreparedModel pool =
      test.freeze()
          .fragment(trusted, {.inputs = {x},
                              .outputs = {y},
                              .commands = {test.xor_of(x.slice(0, 16), h, 0x0f), test.xor_of(h, y.slice(0, 16), 0xf0),
                                           test.xor_of(x.slice(16, 16), y.slice(16, 16), 0xff)}})
          .prepare({.forms = all_forms()});
  const std::vector<std::uint8_t> input = fresh_bytes(32, 3);
  for (const RequestForm form : all_forms()) {
    INFO("inputs " << static_cast<int>(form.inputs) << " outputs " << static_cast<int>(form.outputs));
    ModelSlot slot = pool.acquire(in_a_minute()).value();
    const std::span<std::uint8_t> place = slot.input(x);
    if (form.inputs == Side::host) std::ranges::copy(input, place.begin());
    Inference run = form.inputs == Side::device
                        ? std::move(slot).submit({ready(test.context, input)}, {.outputs = form.outputs})
                        : std::move(slot).submit({.outputs = form.outputs});
    REQUIRE(run.wait(in_a_minute()));
    CHECK(std::ranges::equal(place, input));
    CHECK(std::ranges::equal(run.output(y), xored(input, 0xff)));  // Its bytes are the host's, whatever the form.
    if (form.outputs == Side::device) CHECK(values(run.tensor(0)) == xored(input, 0xff));
  }
  const DeviceTensor target = test.context.tensor(bytes_desc(32));
  Inference run = start(pool, kDeviceDevice, input, {target});
  CHECK(values(target) == xored(input, 0xff));
  REQUIRE(run.wait(in_a_minute()));
  CHECK(std::ranges::equal(run.output(y), xored(input, 0xff)));
}

TEST_CASE("A model in shared memory alone has no staging and no copies", "[model][T7][R29][R30][arena]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({32}, {.label = "x", .placement = Placement::shared});
  const auto h = test.session.allocate<std::uint8_t>({16}, {.label = "h", .placement = Placement::shared});
  const auto y = test.session.allocate<std::uint8_t>({32}, {.label = "y", .placement = Placement::shared});
  PreparedModel pool =
      test.freeze()
          .fragment(trusted, {.inputs = {x},
                              .outputs = {y},
                              .commands = {test.xor_of(x.slice(0, 16), h, 0x0f), test.xor_of(h, y.slice(8, 16), 0xf0)}})
          .prepare({.slots = 2});
  const MemoryStatistics memory = test.context.memory();
  CHECK(memory.requested.live_bytes == 2 * 80);
  CHECK(memory.requested.allocations == 2 * 3);
  CHECK(memory.reserved.live_bytes == 2 * 256);             // Counters of weft's own.
  CHECK(memory.staging.live_bytes == 2 * (3 * 256 + 128));  // The three allocations and the completion word.
  CHECK(pool.node_counts().own_nodes == 1);                 // The completion.
  CHECK(pool.node_counts().kernel_nodes == 2);

  const std::vector<std::uint8_t> input = fresh_bytes(32, 1);
  std::vector<std::uint8_t> expected(32, 0);
  std::ranges::copy(xored({input.begin(), input.begin() + 16}, 0xff), expected.begin() + 8);
  std::vector<Readback> held;
  counting->reset();
  for (int i = 0; i < 2; ++i) {
    ModelSlot slot = pool.acquire(in_a_minute()).value();
    std::ranges::copy(input, slot.input(x).begin());
    Inference run = std::move(slot).submit();
    held.push_back(std::move(run).download());
  }
  CHECK(counting->count(Verb::launch) == 2);
  CHECK(counting->total() == 2);
  for (Readback& readback : held) {
    REQUIRE(readback.wait(in_a_minute()));
    CHECK(std::ranges::equal(readback.bytes(0), std::as_bytes(std::span(expected))));
  }
  CHECK(!pool.try_acquire().has_value());  // The readbacks hold the slots.
  held.pop_back();
  CHECK(pool.try_acquire().has_value());
}

TEST_CASE("Of a shared and a device tensor the device one alone is staged", "[model][T8][R25][R29]") {
  TestSession test;
  const Placement shared = Placement::shared;
  const auto a = test.session.allocate<std::uint8_t>({32}, {.label = "a", .placement = shared});
  const auto b = test.session.allocate<std::uint8_t>({32}, {.label = "b"});
  const auto y = test.session.allocate<std::uint8_t>({32}, {.label = "y", .placement = shared});
  const auto z = test.session.allocate<std::uint8_t>({32}, {.label = "z"});
  PreparedModel pool =
      test.freeze()
          .fragment(trusted,
                    {.inputs = {a, b}, .outputs = {y, z}, .commands = {test.xor_of(a, z, 1), test.xor_of(b, y, 2)}})
          .prepare({.copies = CopyMethod::engine});
  std::uint64_t in = 0;
  std::uint64_t out = 0;
  for (const TopologyNode& node : pool.topology().nodes) {
    const auto* copy = std::get_if<CopyDetail>(&node.detail);
    if (copy != nullptr) (node.role == OwnRole::copy_in ? in : out) += copy->bytes;
  }
  CHECK(in == 32);
  CHECK(out == 32);
  CHECK(test.context.memory().staging.live_bytes == (2 + 2) * 256 + 128);
  const std::vector<std::uint8_t> first = fresh_bytes(32, 1);
  const std::vector<std::uint8_t> second = fresh_bytes(32, 2);
  Inference run = pool.try_acquire().value().submit_host(spans({first, second}));
  REQUIRE(run.wait(in_a_minute()));
  CHECK(std::ranges::equal(run.output(z), xored(first, 1)));
  CHECK(std::ranges::equal(run.output(y), xored(second, 2)));
}

TEST_CASE("Records of a packed input that are out of range are zero and the others right", "[model][T2]") {
  constexpr std::uint32_t kBytes = 200;
  constexpr std::uint32_t kRecords = 7;
  constexpr std::uint32_t kWidth = 48;
  TestSession test;
  const auto kernel = test.session.load(unpack);
  const auto packed = test.session.allocate<std::uint8_t>({kBytes}, {.label = "packed"});
  const auto extents = test.session.allocate<std::uint32_t>({kRecords, 2}, {.label = "extents"});
  const auto y = test.session.allocate<std::uint8_t>({kRecords, kWidth}, {.label = "y"});
  PreparedModel pool =
      test.freeze()
          .fragment(trusted, {.inputs = {packed, extents},
                              .outputs = {y},
                              .commands = {kernel(workload(kRecords), packed, extents, y, kBytes, kRecords, kWidth)}})
          .prepare({.slots = 2, .forms = {kHostHost, kDeviceHost}});
  constexpr std::uint32_t kSeed = 3;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  for (std::uint32_t round = 0; round < 20; ++round) {
    const std::vector<std::uint8_t> bytes = fresh_bytes(kBytes, round);
    std::vector<std::uint32_t> table{0, kWidth, kBytes, 0, kBytes - 1, 2, 0xffffffff, 2, 5, kWidth + 1};
    while (table.size() < 2 * kRecords)
      table.push_back(static_cast<std::uint32_t>(random() % (table.size() % 2 == 0 ? kBytes - kWidth : kWidth)));
    std::vector<std::uint8_t> expected(kRecords * kWidth, 0);
    for (const std::size_t good : {0u, 5u, 6u})
      std::copy_n(bytes.begin() + table[2 * good], table[2 * good + 1],
                  expected.begin() + static_cast<std::ptrdiff_t>(good * kWidth));
    ModelSlot slot = pool.acquire(in_a_minute()).value();
    const std::vector<std::span<const std::byte>> host{std::as_bytes(std::span(bytes)),
                                                       std::as_bytes(std::span(table))};
    Inference run =
        round % 2 == 0
            ? std::move(slot).submit_host(host)
            : std::move(slot).submit({ready(test.context, bytes), test.context.upload({extents.desc, host[1], "t"})});
    CHECK(result(run) == expected);
  }
}

TEST_CASE("Tensors of more than the copy kernel's bytes serve in every form", "[model][R24]") {
  const std::uint64_t bytes = kCopyKernelBytes + 7;
  const XorModel model(bytes);
  PreparedModel pool = model.fragment.prepare({.forms = all_forms()});
  for (const RequestForm form : all_forms()) {
    const std::vector<std::uint8_t> input = fresh_bytes(bytes, 1 + static_cast<unsigned>(form.outputs));
    Inference run = start(pool, form, input);
    CHECK(answer(run, form) == xored(input, 0xff));
  }
}

TEST_CASE("A request's tensors may go as soon as it is submitted", "[model][R24]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint32_t>({kCount}, {.label = "x"});
  const auto h = test.session.allocate<std::uint32_t>({kCount}, {.label = "h"});
  const auto y = test.session.allocate<std::uint32_t>({kCount}, {.label = "y"});
  PreparedModel pool =
      test.freeze()
          .fragment(trusted,
                    {.inputs = {x},
                     .outputs = {y},
                     .commands = {test.slow_copy(workload(kCount), x, h, std::uint64_t{kCount}, std::uint64_t{2000000}),
                                  test.slow_copy(workload(kCount), h, y, std::uint64_t{kCount}, std::uint64_t{0})}})
          .prepare({.slots = 4, .forms = {kDeviceHost}});
  std::vector<Inference> runs;
  for (std::uint32_t i = 0; i < 4; ++i) {
    const std::vector<std::uint32_t> values(kCount, i);
    runs.push_back(
        pool.try_acquire().value().submit({test.context.upload({x.desc, std::as_bytes(std::span(values)), "brief"})}));
    // Another tensor of this size may now stand at the same address.
    static_cast<void>(test.context.tensor(x.desc));
  }
  for (std::uint32_t i = 0; i < 4; ++i) {
    REQUIRE(runs[i].wait(in_a_minute()));
    CHECK(std::ranges::count(runs[i].output(y), i) == kCount);
  }
}

}  // namespace weft::test
