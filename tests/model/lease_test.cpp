#include "catch.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/requests.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

// What keeps a slot: the handles of its request, its outputs, and all that is made of them. The last one out frees it.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

/// A copy of what `source` holds, as a model that a graph is recorded over.
ModelFragment copier(const Context& context) {
  TestSession test(context);
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  return test.freeze().fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, y, 0x21)}});
}

std::vector<std::byte> bytes_of(const std::vector<std::uint8_t>& values) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(values));
  return {bytes.begin(), bytes.end()};
}

/// One slot whose last request's output is leased by `output` alone.
struct Leased {
  explicit Leased(std::uint64_t seed = 1) : input(fresh_bytes(kCount, seed)) {
    Inference run = start(pool, kHostDevice, input);
    output = run.tensor(0);
  }
  /// The slot comes back once what uses it has drained.
  [[nodiscard]] bool comes_back() {
    return eventually([&] { return pool.try_acquire().has_value(); });
  }

  std::vector<std::uint8_t> input;
  XorModel model = XorModel(kCount);
  PreparedModel pool = model.fragment.prepare({.forms = {kHostDevice}});
  std::optional<DeviceTensor> output;
};

}  // namespace

TEST_CASE("Each of three leased results keeps its slot and frees it alone", "[model][R21][R22][R28][T11]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare({.slots = 3, .forms = {kHostDevice}});
  std::vector<DeviceTensor> outputs;
  for (std::uint32_t i = 0; i < 3; ++i) {
    Inference run = start(pool, kHostDevice, fresh_bytes(kCount, i));
    REQUIRE(run.wait(in_a_minute()));
    outputs.push_back(run.tensor(0));
  }
  CHECK(!pool.try_acquire().has_value());
  CHECK(!pool.is_idle());
  std::optional<DeviceTensor> copy(outputs[1]);
  outputs.erase(outputs.begin() + 1);
  CHECK(!pool.try_acquire().has_value());
  std::optional<DeviceTensor> view(copy->view(bytes_desc(3), 7));
  copy.reset();
  CHECK(!pool.try_acquire().has_value());
  const std::vector<std::uint8_t> expected = xored(fresh_bytes(kCount, 1), 0xff);
  CHECK(values(*view) == std::vector<std::uint8_t>(expected.begin() + 7, expected.begin() + 10));
  view.reset();
  std::optional<ModelSlot> freed = pool.try_acquire();
  CHECK(freed.has_value());
  CHECK(!pool.try_acquire().has_value());
  CHECK(values(outputs[0]) == xored(fresh_bytes(kCount, 0), 0xff));
  CHECK(values(outputs[1]) == xored(fresh_bytes(kCount, 2), 0xff));
  freed.reset();
  outputs.clear();
  CHECK(pool.is_idle());
}

TEST_CASE("Every tensor of one run leases the slot for itself", "[model][R22]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare({.forms = {kHostDevice}});
  std::optional<Inference> run = start(pool, kHostDevice, fresh_bytes(kCount, 1));
  REQUIRE(run->wait(in_a_minute()));
  std::optional<DeviceTensor> first = run->tensor(0);
  std::optional<DeviceTensor> second = run->tensor(0);
  run.reset();
  first.reset();
  CHECK(!pool.try_acquire().has_value());
  second.reset();
  CHECK(pool.try_acquire().has_value());
}

TEST_CASE("An empty view of an output keeps no slot", "[model][R22]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare({.forms = {kHostDevice}});
  std::optional<Inference> run = start(pool, kHostDevice, fresh_bytes(kCount, 1));
  REQUIRE(run->wait(in_a_minute()));
  const DeviceTensor empty = run->tensor(0).view(bytes_desc(0), 5);
  run.reset();
  CHECK(pool.try_acquire().has_value());
}

TEST_CASE("A graph recorded over an output keeps the slot until its pool is gone", "[model][R22][T13]") {
  using Make = std::function<PreparedModel(const Context&, const DeviceTensor&)>;
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 4);
  const Make bound = [](const Context& context, const DeviceTensor& tensor) {
    return PreparedModel::prepare(context, [&](Context& home) {
      Graph graph(home);
      const DeviceTensor x = graph.bind(tensor);
      std::vector<DeviceTensor> outputs = copier(home).record(graph, {x});
      return InferenceGraph{std::move(graph), {}, std::move(outputs)};
    });
  };
  const Make recorded = [](const Context& context, const DeviceTensor& tensor) {
    return PreparedModel::prepare(context, [&](Context& home) {
      Graph graph(home);
      std::vector<DeviceTensor> outputs = copier(home).record(graph, {tensor});
      return InferenceGraph{std::move(graph), {}, std::move(outputs)};
    });
  };
  for (const Make& make : {bound, recorded}) {
    XorModel model(kCount);
    PreparedModel pool = model.fragment.prepare({.forms = {kHostDevice}});
    std::optional<PreparedModel> downstream;
    {
      Inference run = start(pool, kHostDevice, input);
      downstream = make(pool.context(), run.tensor(0));  // Waits for the run.
    }
    CHECK(!pool.try_acquire().has_value());
    for (int i = 0; i < 3; ++i) CHECK(infer(*downstream, {}) == xored(input, 0xff ^ 0x21));
    CHECK(!pool.try_acquire().has_value());
    std::optional<Inference> last = submit(*downstream, {});
    downstream.reset();
    CHECK(!pool.try_acquire().has_value());
    CHECK(result(*last) == xored(input, 0xff ^ 0x21));
    last.reset();
    CHECK(eventually([&] { return pool.try_acquire().has_value(); }));
  }
}

TEST_CASE("An unprepared graph over an output keeps the slot", "[model][R22][T13]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare({.forms = {kHostDevice}});
  std::optional<Graph> graph(pool.context());
  {
    Inference run = start(pool, kHostDevice, fresh_bytes(kCount, 1));
    static_cast<void>(graph->bind(run.tensor(0).view(bytes_desc(4), 4)));
  }
  CHECK(!pool.try_acquire().has_value());
  graph.reset();
  CHECK(pool.try_acquire().has_value());
}

TEST_CASE("A readback keeps the slot and the bytes of its request", "[model][R22][R29][T16]") {
  for (const Placement placement : {Placement::device, Placement::shared}) {
    TestSession test;
    const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
    const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y", .placement = placement});
    PreparedModel pool = test.freeze()
                             .fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, y, 0xff)}})
                             .prepare();
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
    Inference run = submit(pool, input);
    std::optional<Readback> readback = std::move(run).download();
    CHECK(refusal([&] { static_cast<void>(run.wait(past())); }).sentence() == "The inference is moved from.");
    CHECK(readback->size() == 1);
    CHECK(readback->desc(0) == y.desc);
    std::vector<std::byte> bytes(kCount);
    const std::vector<std::span<std::byte>> into{std::span(bytes)};
    CHECK(refusal([&] { static_cast<void>(readback->read_into({}, past())); }).code() == ErrorCode::invalid);
    REQUIRE(readback->read_into(into, in_a_minute()));
    CHECK(std::ranges::equal(bytes, bytes_of(xored(input, 0xff))));
    CHECK(std::ranges::equal(readback->bytes(0), bytes));
    CHECK(!pool.try_acquire().has_value());
    readback.reset();
    CHECK(pool.try_acquire().has_value());
  }
}

TEST_CASE("A download of a leased tensor leaves the slot once it is done and everything else has gone",
          "[model][R22]") {
  Leased leased;
  Readback readback = leased.output->download();
  leased.output.reset();
  REQUIRE(readback.wait(in_a_minute()));
  CHECK(leased.comes_back());  // The bytes are in staging of the readback's own.
  CHECK(std::ranges::equal(readback.bytes(0), bytes_of(xored(leased.input, 0xff))));
}

TEST_CASE("A completion keeps no slot and stays that of its run", "[model][R15][T34]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare({.slots = 1, .forms = all_forms()});
  std::vector<Completion> observed;
  for (std::uint32_t round = 0; round < 300; ++round) {
    const RequestForm form = all_forms()[round % 4];
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, round);
    std::optional<ModelSlot> slot = pool.try_acquire();
    REQUIRE(slot.has_value());
    slot.reset();
    Inference run = start(pool, form, input);
    observed.push_back(run.completion());
    REQUIRE(run.wait(in_a_minute()));
    CHECK(observed.back().is_done());
    CHECK(answer(run, form) == xored(input, 0xff));
  }
  CHECK(pool.is_idle());
  CHECK(std::ranges::all_of(observed, &Completion::is_done));
}

TEST_CASE("A slot is free as soon as a request of any form has been waited for and dropped", "[model][B4][T34]") {
  const XorModel model(kCount);
  PreparedModel pool = model.fragment.prepare({.forms = all_forms()});
  const DeviceTensor input = ready(pool.context(), fresh_bytes(kCount, 1));
  const DeviceTensor output = pool.context().tensor(input.desc());
  for (std::uint32_t round = 0; round < 4000; ++round) {
    const RequestForm form = all_forms()[round % 4];
    std::optional<ModelSlot> slot = pool.try_acquire();
    REQUIRE(slot.has_value());
    SubmitOptions options{.outputs = form.outputs};
    if (round % 8 == 7) options.into = {output};
    Inference run = form.inputs == Side::device ? std::move(*slot).submit({input}, std::move(options))
                                                : std::move(*slot).submit(std::move(options));
    REQUIRE(run.wait(in_a_minute()));
    if (form.outputs == Side::device) static_cast<void>(run.tensor(0));
  }
  CHECK(pool.is_idle());
}

TEST_CASE("A leased output outlives every handle of its model", "[model][R22][S72]") {
  std::optional<DeviceTensor> output;
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  {
    PreparedModel pool = XorModel(kCount).fragment.prepare({.slots = 2, .forms = {kHostDevice}});
    output = start(pool, kHostDevice, input).tensor(0);
  }
  CHECK(values(*output) == xored(input, 0xff));
  output.reset();
}

TEST_CASE("A shared output is read in place under a lease and not written meanwhile", "[model][R3][R22]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y", .placement = Placement::shared});
  const ModelFragment fragment =
      test.freeze().fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, y, 0xff)}});
  PreparedModel pool = fragment.prepare({.forms = {kHostDevice}});
  PreparedModel writer = fragment.prepare({.forms = {kHostDevice}});
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  std::optional<DeviceTensor> output = start(pool, kHostDevice, input).tensor(0);
  std::optional<Readback> readback = output->download();
  REQUIRE(readback->wait(in_a_minute()));
  const Error error = refusal([&] { static_cast<void>(start(writer, kHostDevice, input, {*output})); });
  CHECK(error.code() == ErrorCode::busy);
  CHECK(error.sentence() ==
        "The host maps the buffer \"y\" for reading; a submission that writes it waits for the guard to go.");
  CHECK(std::ranges::equal(readback->bytes(0), bytes_of(xored(input, 0xff))));
  output.reset();
  CHECK(!pool.try_acquire().has_value());
  readback.reset();
  CHECK(pool.try_acquire().has_value());
}

TEST_CASE("A producer's slot comes back after the last node of its consumer", "[model][host-only][R23][T14]") {
  const std::shared_ptr<HostDevice> device = make_host_device();
  const ScopedDevice scoped(Device::host(), device);
  const XorModel model(kCount);
  PreparedModel producer = model.fragment.prepare({.forms = {kHostDevice}});
  PreparedModel consumer = model.fragment.prepare({.forms = {kDeviceHost}});
  device->hold();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  Inference last = consumer.try_acquire().value().submit({start(producer, kHostDevice, input).tensor(0)});
  // Copy in, two dispatches and copy out, of the one and then of the other, and what orders them.
  std::size_t steps = 0;
  while (device->step() == 1) {
    ++steps;
    const bool is_done = last.wait(past());
    CHECK(producer.try_acquire().has_value() == is_done);
  }
  CHECK(steps >= 8);
  CHECK(result(last) == input);
  CHECK(device->violations().empty());
}

TEST_CASE("An unsubmitted slot or a refused submission keeps nothing", "[model][R23][R27]") {
  const XorModel model(kCount);
  PreparedModel pool = model.fragment.prepare({.forms = all_forms()});
  const DeviceTensor input = ready(pool.context(), fresh_bytes(kCount, 1));
  for (int i = 0; i < 100; ++i) {
    std::optional<ModelSlot> slot = pool.try_acquire();
    REQUIRE(slot.has_value());
    if (i % 2 == 0) continue;
    CHECK(refusal([&] { static_cast<void>(std::move(*slot).submit({input, input})); }).code() == ErrorCode::invalid);
  }
  CHECK(pool.is_idle());
}

}  // namespace weft::test
