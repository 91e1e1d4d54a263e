#include "catch.h"
#include "device/device_decorator.h"
#include "device/faults.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_state.h"
#include "support/requests.h"
#include "support/session_work.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Memory of a model that its runs write and that outlives them.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 8;
using Values = std::vector<std::uint8_t>;

template <class T>
T word_of(const Values& bytes) {
  T word{};
  REQUIRE(bytes.size() == sizeof(T));
  std::memcpy(&word, bytes.data(), sizeof(T));
  return word;
}

/// A recurrence: the state is the digest of all that runs were given, in their order, and y is what a run makes of it.
struct Recurrence {
  explicit Recurrence(const Context& home, AllocationOptions options = {.label = "memory"})
      : Recurrence(TestSession(home), std::move(options)) {}
  Recurrence(TestSession test, AllocationOptions options)
      : state(test.session.state<std::int64_t>({1}, std::move(options))),
        x(test.session.allocate<std::uint8_t>({kCount}, {.label = "x"})),
        y(test.session.allocate<std::uint8_t>({sizeof(std::int64_t)}, {.label = "y"})),
        step(test.digest(grid(1), x, state, kCount, std::uint64_t{0}).label("step")),
        show(test.xor_of(state, y, 0).label("show")),
        model(test.freeze()) {}

  /// Folds x into the state and shows it.
  [[nodiscard]] ModelFragment writer() const {
    return model.fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {step, show}, .label = "writer"});
  }
  /// Shows the state.
  [[nodiscard]] ModelFragment reader() const {
    return model.fragment(trusted, {.outputs = {y}, .commands = {show}, .label = "reader"});
  }
  [[nodiscard]] std::int64_t value() const { return word_of<std::int64_t>(values(model.state(state))); }

  /// What the state is after these seeds' inputs.
  [[nodiscard]] static std::int64_t after(const std::vector<std::uint64_t>& seeds, std::int64_t before = 0) {
    for (const std::uint64_t seed : seeds) before = digest_of(fresh_bytes(kCount, seed), before, 0);
    return before;
  }

  TypedRegion<std::int64_t> state;
  TypedRegion<std::uint8_t> x;
  TypedRegion<std::uint8_t> y;
  Command step;
  Command show;
  ModelDefinition model;
};

Inference step(PreparedModel& writers, std::uint64_t seed) { return submit(writers, fresh_bytes(kCount, seed)); }
std::int64_t shown(Inference& run) { return word_of<std::int64_t>(result(run)); }

/// y = the state after it grew by one.
struct Counter {
  explicit Counter(const Context& home, AllocationOptions options = {.label = "count"})
      : Counter(TestSession(home), std::move(options)) {}
  Counter(TestSession test, AllocationOptions options)
      : count(test.session.state<std::uint32_t>({1}, std::move(options))),
        y(test.session.allocate<std::uint8_t>({sizeof(std::uint32_t)}, {.label = "y"})),
        commands{test.increment(grid(1), count, std::uint32_t{1}), test.xor_of(count, y, 0)},
        model(test.freeze()) {}

  [[nodiscard]] ModelFragment fragment() const {
    return model.fragment(trusted, {.outputs = {y}, .commands = commands, .label = "counter"});
  }
  [[nodiscard]] std::uint32_t value() const { return word_of<std::uint32_t>(values(model.state(count))); }

  TypedRegion<std::uint32_t> count;
  TypedRegion<std::uint8_t> y;
  std::vector<Command> commands;
  ModelDefinition model;
};

std::uint32_t counted(PreparedModel& pool) { return word_of<std::uint32_t>(infer(pool, {})); }

/// Leaves out waits of one stream for another.
class UnorderedDevice final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  DeviceStatus wait_event(StreamHandle, EventHandle) noexcept override { return {}; }
};

/// Runs of two pools, all of them queued before anything runs; then what each showed, and the state at the end.
std::vector<std::int64_t> run_shuffled(std::uint64_t seed, bool unordered) {
  const std::shared_ptr<HostDevice> host = make_host_device({.shuffled = true, .seed = seed});
  std::shared_ptr<DeviceApi> device = host;
  if (unordered) device = std::make_shared<UnorderedDevice>(host);
  const ScopedDevice scoped(Device::host(), device);
  const Recurrence recurrence(Context::open(Device::host()));
  PreparedModel first = recurrence.writer().prepare({.slots = 2});
  PreparedModel second = recurrence.writer().prepare({.slots = 2});
  host->hold();
  std::vector<Inference> runs;
  for (std::uint64_t i = 0; i < 4; ++i) runs.push_back(step(i % 2 == 0 ? first : second, i));
  host->drain();
  std::vector<std::int64_t> seen;
  for (Inference& run : runs) seen.push_back(shown(run));
  seen.push_back(recurrence.value());
  return seen;
}

std::vector<std::int64_t> run_serially() {
  std::vector<std::int64_t> seen;
  for (std::uint64_t i = 0; i < 4; ++i) seen.push_back(Recurrence::after({i}, seen.empty() ? 0 : seen.back()));
  seen.push_back(seen.back());
  return seen;
}

}  // namespace

TEST_CASE("State is zero after prepare and one after one run that adds one", "[model][state][case-10]") {
  const Counter counter(Context::open(test_device()));
  CHECK(counter.value() == 0);
  PreparedModel pool = counter.fragment().prepare({.slots = 4});
  CHECK(counter.value() == 0);
  CHECK(counted(pool) == 1);
  CHECK(counter.value() == 1);
  // A pool that is prepared while the model serves changes nothing either.
  PreparedModel more = counter.fragment().prepare();
  CHECK(counter.value() == 1);
  CHECK(counted(more) == 2);
  CHECK(counted(pool) == 3);
}

TEST_CASE("A kernel that waits for a counter which the plan fills runs again and again", "[model][state][case-10]") {
  TestSession test;
  const auto spin = test.session.load(spin_until_zero);
  const auto counter = test.session.state<std::uint32_t>({1}, {.label = "counter"});
  const auto y = test.session.allocate<std::uint32_t>({1}, {.label = "y"});
  PreparedModel pool =
      test.freeze()
          .fragment(trusted, {.outputs = {y}, .commands = {fill(counter, 0), spin(grid(1), counter, y)}})
          .prepare({.slots = 2});
  for (int i = 0; i < 3; ++i) {
    Inference run = submit(pool, {});
    REQUIRE(run.wait(in_a_minute()));
    CHECK(run.output(y)[0] == 1);
  }
}

TEST_CASE("A cache that runs append to over four slots is the serial one", "[model][state][R14]") {
  constexpr std::uint64_t kRuns = 200;
  TestSession test;
  const auto push = test.session.load(append);
  const auto cache = test.session.state<std::uint8_t>({kRuns * kCount}, {.label = "cache"});
  const auto length = test.session.state<std::uint32_t>({1}, {.label = "length"});
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto d = test.session.allocate<std::int64_t>({1}, {.label = "d"});
  const ModelDefinition model = test.freeze();
  PreparedModel pool = model
                           .fragment(trusted, {.inputs = {x},
                                               .outputs = {d},
                                               .commands = {push(grid(1), x, cache, length, d, std::uint32_t{kCount})}})
                           .prepare({.slots = 4});
  Values serial;
  std::vector<std::int64_t> expected;
  std::deque<Inference> runs;
  std::vector<std::int64_t> seen;
  const auto finish_first = [&] {
    REQUIRE(runs.front().wait(in_a_minute()));
    seen.push_back(runs.front().output(d)[0]);
    runs.pop_front();
  };
  for (std::uint64_t i = 0; i < kRuns; ++i) {
    if (runs.size() == 4) finish_first();
    const Values word = fresh_bytes(kCount, i);
    runs.push_back(submit(pool, word));
    serial.insert(serial.end(), word.begin(), word.end());
    expected.push_back(digest_of(serial, 0, 0));
  }
  while (!runs.empty()) finish_first();
  CHECK(seen == expected);
  CHECK(values(model.state(cache)) == serial);
  CHECK(word_of<std::uint32_t>(values(model.state(length))) == kRuns);
}

TEST_CASE("Runs that write state come in the order of their submission whatever the slot and pool",
          "[model][state][R14][T28][host-only]") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    CHECK(run_shuffled(seed, false) == run_serially());
  }
}

TEST_CASE("A run that does not wait for the writer of its state is found by some order",
          "[model][state][R14][host-only]") {
  std::uint64_t found = 0;
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    if (run_shuffled(seed, true) != run_serially()) ++found;
  }
  CHECK(found > 0);
}

TEST_CASE("Runs that only read state wait for its writers and not for one another",
          "[model][state][R12][T29][host-only]") {
  const std::shared_ptr<HostDevice> host = make_host_device();
  const auto counting = std::make_shared<CountingDevice>(host);
  const ScopedDevice scoped(Device::host(), counting);
  const Recurrence recurrence(Context::open(Device::host()));
  PreparedModel writers = recurrence.writer().prepare({.slots = 2});
  PreparedModel readers = recurrence.reader().prepare({.slots = 4});
  host->drain();
  host->hold();
  Inference before = step(writers, 1);
  std::vector<Inference> runs;
  counting->reset();
  for (int i = 0; i < 2; ++i) runs.push_back(submit(readers, {}));
  CHECK(counting->count(Verb::wait_event) == 2);  // Each behind the writer.
  REQUIRE(host->step(1000) > 0);
  REQUIRE(before.wait(past()));
  for (int i = 0; i < 2; ++i) REQUIRE(runs[static_cast<std::size_t>(i)].wait(past()));
  counting->reset();
  for (int i = 0; i < 2; ++i) runs.push_back(submit(readers, {}));
  CHECK(counting->count(Verb::wait_event) == 0);
  Inference behind = step(writers, 2);
  CHECK(counting->count(Verb::wait_event) == 2);  // Behind both readers.
  host->drain();
  for (Inference& run : runs) CHECK(shown(run) == Recurrence::after({1}));
  CHECK(shown(behind) == Recurrence::after({1, 2}));
}

TEST_CASE("A reset and a read of state stand between the runs before and behind them", "[model][state][host-only]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    HeldContext held(seed);
    const Recurrence recurrence(held.context);
    PreparedModel pool = recurrence.writer().prepare({.slots = 3});
    held.device->drain();
    held.device->hold();
    Inference first = step(pool, 1);
    Readback between = recurrence.model.state(recurrence.state).download();
    const Completion reset = recurrence.model.reset_state(recurrence.state);
    Inference second = step(pool, 2);
    const std::vector<std::int64_t> stored{-7};
    const DeviceTensor written =
        held.context.upload({recurrence.state.desc, std::as_bytes(std::span(stored)), "stored"})
            .copy_into(recurrence.model.state(recurrence.state));
    Inference third = step(pool, 3);
    CHECK(!reset.is_done());
    held.device->release();
    CHECK(shown(first) == Recurrence::after({1}));
    CHECK(reset.wait(in_a_minute()));
    CHECK(shown(second) == Recurrence::after({2}));
    CHECK(written.wait(in_a_minute()));
    CHECK(shown(third) == Recurrence::after({3}, -7));
    REQUIRE(between.wait(in_a_minute()));
    std::int64_t read = 0;
    std::memcpy(&read, between.bytes(0).data(), sizeof(read));
    CHECK(read == Recurrence::after({1}));
    CHECK(recurrence.value() == Recurrence::after({3}, -7));
  }
}

TEST_CASE("A run that waits for the host keeps its place among the runs of its state and leaves none when it fails",
          "[model][state][R12][T26][T32]") {
  const Context context = Context::open(test_device());
  const Recurrence recurrence(context);
  PreparedModel pool = recurrence.writer().prepare({.slots = 3});
  for (const bool fails : {false, true}) {
    INFO("the producer " << (fails ? "fails" : "completes"));
    CHECK(recurrence.model.reset_state(recurrence.state).wait(in_a_minute()));
    CompletionSource source(context, "tokenizer");
    ModelSlot slot = pool.acquire(in_a_minute()).value();
    std::ranges::copy(fresh_bytes(kCount, 1), slot.input<std::uint8_t>(0).begin());
    SubmitOptions options;
    options.after = {source.completion()};
    Inference waiting = std::move(slot).submit(std::move(options));
    Inference behind = step(pool, 2);
    CHECK(!behind.wait(past()));
    if (fails) {
      REQUIRE(source.fail(nullptr));
      CHECK(refusal([&] { static_cast<void>(waiting.wait(in_a_minute())); }).code() == ErrorCode::failed);
      CHECK(shown(behind) == Recurrence::after({2}));
    } else {
      REQUIRE(source.complete());
      CHECK(shown(waiting) == Recurrence::after({1}));
      CHECK(shown(behind) == Recurrence::after({1, 2}));
    }
  }
}

TEST_CASE("A reset zeroes its region of state and no byte beside it", "[model][state]") {
  TestSession test;
  const auto state = test.session.state<std::uint8_t>({64}, {.label = "state"});
  test::upload(test.session, state, Values(64, 9));
  const ModelDefinition model = test.freeze();
  CHECK(model.reset_state(state.slice(3, 10)).wait(in_a_minute()));
  Values expected(64, 9);
  std::fill_n(expected.begin() + 3, 10, std::uint8_t{0});
  CHECK(values(model.state(state)) == expected);
  CHECK(values(model.state(state.slice(2, 3))) == Values{9, 0, 0});
}

TEST_CASE("State holds at the first run what the session left in it", "[model][state][S4][S6][S8]") {
  const Placement placement = GENERATE(Placement::device, Placement::shared);
  INFO("placement " << static_cast<int>(placement));
  TestSession test;
  const auto count = test.session.state<std::uint32_t>({1}, {.label = "count", .placement = placement});
  const auto y = test.session.allocate<std::uint8_t>({sizeof(std::uint32_t)}, {.label = "y"});
  CHECK(read(test.session, count) == Values{0, 0, 0, 0});
  test::upload(test.session, count, Values{40, 0, 0, 0});
  test.session.record("warm-up", {test.increment(grid(1), count, std::uint32_t{1})});
  test.session.replay("warm-up");
  const std::vector<Command> commands{test.increment(grid(1), count, std::uint32_t{1}), test.xor_of(count, y, 0)};
  const ModelDefinition model = test.freeze();
  CHECK(model.state(count).desc() == count.desc);
  CHECK(model.state(Region(count)).placement() == placement);
  CHECK(values(model.state(count)) == Values{41, 0, 0, 0});
  PreparedModel pool = model.fragment(trusted, {.outputs = {y}, .commands = commands}).prepare();
  CHECK(counted(pool) == 42);
}

TEST_CASE("State in shared memory is mapped between runs and refuses them meanwhile", "[model][state][T31]") {
  const Counter counter(Context::open(test_device()), {.label = "count", .placement = Placement::shared});
  PreparedModel pool = counter.fragment().prepare({.slots = 2});
  CHECK(counted(pool) == 1);
  const Buffer state = counter.model.state(Region(counter.count));
  {
    std::optional<WriteGuard> guard = state.map_write(in_a_minute());
    REQUIRE(guard.has_value());
    CHECK(guard->bytes()[0] == std::byte{1});
    guard->bytes()[0] = std::byte{9};
    const Error refused = refusal([&] { static_cast<void>(submit(pool, {})); });
    CHECK(refused.code() == ErrorCode::busy);
    CHECK(contains(refused.sentence(), "\"count\""));
    CHECK(refusal([&] { static_cast<void>(counter.model.reset_state(counter.count)); }).code() == ErrorCode::busy);
  }
  CHECK(counted(pool) == 10);
}

TEST_CASE("A model has its state once whatever the number of slots and fragments", "[model][state][S10][S40]") {
  const Context context = Context::open(test_device());
  TestSession test(context);
  constexpr std::uint64_t kStateBytes = 4096;
  const auto state = test.session.state<std::uint32_t>({kStateBytes / 4}, {.label = "state"});
  const auto w = test.weight(Values(100, 1));
  const Region first = state.slice(0, 4);
  const std::vector<Command> commands{test.increment(grid(1), first, std::uint32_t{1})};
  const ModelDefinition model = test.freeze();
  CHECK(model.state_bytes() == kStateBytes);
  CHECK(model.weight_bytes() == w.bytes);
  const MemoryStatistics before = context.memory();
  CHECK(before.requested.live_bytes == kStateBytes + w.bytes);
  const ModelFragment fragment = model.fragment(trusted, {.commands = commands});
  PreparedModel pool = fragment.prepare({.slots = 4});
  PreparedModel other = fragment.prepare({.slots = 4});
  CHECK(context.memory().requested.live_bytes == before.requested.live_bytes);
  Inference run = submit(pool, {});
  REQUIRE(run.wait(in_a_minute()));
  // It is all there, though the commands use its first word alone.
  Values expected(kStateBytes, 0);
  expected[0] = 1;
  CHECK(values(model.state(state)) == expected);
}

TEST_CASE("State is charged once and given back with the last that uses it", "[model][state][S5][R32][R33]") {
  const Placement placement = GENERATE(Placement::device, Placement::shared);
  INFO("placement " << static_cast<int>(placement));
  constexpr std::uint64_t kBytes = 1 << 16;
  const MemoryBudget budget(std::uint64_t{1} << 30);
  const Context context = Context::open(test_device(), {.budget = budget});
  const std::uint64_t own = budget.used_bytes();
  const bool same_budget = GENERATE(true, false);
  std::optional<ModelDefinition> model;
  Region state;
  {
    ModelSession session(test_device(), {.budget = same_budget ? budget : MemoryBudget(std::uint64_t{1} << 30)});
    state = session.state(kBytes, {.label = "state", .placement = placement});
    CHECK(budget.used_bytes() - own == (same_budget ? kBytes : 0));
    model = std::move(session).freeze(context);
  }
  CHECK(budget.used_bytes() - own == kBytes);
  const MemoryStatistics now = context.memory();
  CHECK(now.requested.live_bytes == kBytes);
  CHECK((placement == Placement::device ? now.reserved : now.staging).live_bytes == kBytes);
  std::optional<Buffer> buffer = model->state(state);
  model.reset();
  CHECK(budget.used_bytes() - own == kBytes);
  buffer.reset();
  CHECK(eventually([&] { return live(context) == std::vector<std::uint64_t>{0, 0, 0}; }));
  CHECK(budget.used_bytes() == own);
}

TEST_CASE("State that a budget refuses leaves nothing", "[model][state][S1][S5][R33]") {
  constexpr std::uint64_t kBytes = 1024;
  const MemoryBudget small(kBytes);
  ModelSession session(test_device(), {.budget = small});
  const Error refused = refusal([&] { static_cast<void>(session.state(kBytes + 1, {.label = "state"})); });
  CHECK(refused.code() == ErrorCode::invalid);
  CHECK(refused.sentence() == "1025 bytes are more than the memory budget's ceiling of 1024 bytes.");
  CHECK(refused.contexts() ==
        std::vector<std::string>{"allocating 1025 bytes for \"state\" of a session", "making the state \"state\""});
  CHECK(small.used_bytes() == 0);
  const Region state = session.state(kBytes, {.label = "state"});
  CHECK(state.allocation == 0);
  CHECK(small.used_bytes() == kBytes);

  const MemoryBudget home(std::uint64_t{1} << 30);
  const Context context = Context::open(test_device(), {.budget = home});
  const std::uint64_t own = home.used_bytes();
  const MemoryReservation rest = home.reserve(home.ceiling_bytes() - own - kBytes + 1);
  const MemoryStatistics before = context.memory();
  const Error freeze = refusal([&] { static_cast<void>(std::move(session).freeze(context)); });
  CHECK(freeze.code() == ErrorCode::busy);
  CHECK(freeze.contexts() == std::vector<std::string>{"adopting 0 weights and 1 states of a session"});
  CHECK(context.memory() == before);
  CHECK(home.used_bytes() == home.ceiling_bytes() - kBytes + 1);
  CHECK(eventually([&] { return small.used_bytes() == 0; }));
}

TEST_CASE("Inputs and outputs in state are refused", "[model][state][S23][S47]") {
  const Recurrence recurrence(Context::open(test_device()));
  const TensorRegion inside(recurrence.state, recurrence.state.desc);
  for (const bool as_input : {true, false}) {
    FragmentOptions options{.commands = {recurrence.show}};
    (as_input ? options.inputs : options.outputs) = {inside};
    const Error error = refusal([&] { static_cast<void>(recurrence.model.fragment(trusted, options)); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() ==
          "The region is of the state \"memory\", which all slots share; an input or output is memory of each slot's "
          "own.");
    CHECK(error.contexts() == std::vector<std::string>{as_input ? "validating inputs[0]" : "validating outputs[0]"});
  }
}

TEST_CASE("State of no bytes and regions that are no state are refused", "[model][state]") {
  TestSession test;
  const Error none = refusal([&] { static_cast<void>(test.session.state(0, {.label = "none"})); });
  CHECK(none.code() == ErrorCode::invalid);
  CHECK(none.sentence() == "The allocation \"none\" has 0 bytes; an allocation has 1 to 9223372036854775807.");
  CHECK(refusal([&] { static_cast<void>(test.session.state<float>({0, 4})); }).code() == ErrorCode::invalid);
  const auto wrong = static_cast<Placement>(7);
  CHECK(refusal([&] { static_cast<void>(test.session.state(4, {.placement = wrong})); }).code() == ErrorCode::invalid);

  const auto state = test.session.state<std::uint32_t>({2}, {.label = "state"});
  const Region scratch = test.session.allocate(8, {.label = "scratch"});
  const Region weight = test.weight(Values(8, 1));
  const ModelDefinition model = test.freeze();
  const auto sentence = [&](const Region& region) {
    const Error read = refusal([&] { static_cast<void>(model.state(region)); });
    const Error reset = refusal([&] { static_cast<void>(model.reset_state(region)); });
    CHECK(read.code() == ErrorCode::invalid);
    CHECK(reset.sentence() == read.sentence());
    return read.sentence();
  };
  CHECK(sentence(scratch) == "The allocation \"scratch\" is scratch; state is what ModelSession::state makes.");
  CHECK(sentence(weight) == "The allocation \"w\" is a weight; state is what ModelSession::state makes.");
  CHECK(sentence(state.slice(8, 0)) == "The region of the state \"state\" is empty.");
  Region far = state;
  far.offset = 4;
  CHECK(sentence(far) == "The region of 8 bytes at byte 4 passes the 8 bytes of allocation \"state\".");
  Region foreign = state;
  foreign.session += 1;
  CHECK(contains(sentence(foreign), "The region belongs to session"));
  const auto tensor = [&](const TensorRegion& region) {
    return refusal([&] { static_cast<void>(model.state(region)); }).sentence();
  };
  CHECK(tensor({state.slice(0, 4), state.desc}) ==
        "The tensor u32[2] of 8 bytes at byte 0 leaves the 4 bytes of u8[4].");
  CHECK(tensor({state, TensorDesc(DType::u32, {0})}) == "The state's descriptor u32[0] is empty.");
  CHECK(contains(tensor({state.slice(2, 4), TensorDesc(DType::u32, {1})}), "multiples of its element size"));
}

TEST_CASE("A tensor that shares bytes with a fragment's state is refused as its input", "[model][state][S56]") {
  const Context context = Context::open(test_device());
  const Recurrence recurrence(context);
  const ModelFragment writer = recurrence.writer();
  const DeviceTensor inside = recurrence.model.state(recurrence.state).view(TensorDesc(DType::u8, {kCount}));
  Graph graph(context, "g");
  const DeviceTensor bound = graph.bind(inside);
  for (const DeviceTensor& tensor : {inside, bound}) {
    const Error error = check_refusal_changes_nothing([&] { return ModelState(context, graph); },
                                                      [&] { static_cast<void>(writer.record(graph, {tensor})); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == "The tensor shares bytes with the state \"memory\" of the fragment.");
  }
  // As an input of each request, too: the run would read what it writes.
  PreparedModel pool = writer.prepare({.forms = {kDeviceHost}});
  const Error request = refusal([&] { static_cast<void>(pool.acquire(in_a_minute()).value().submit({inside})); });
  CHECK(request.code() == ErrorCode::invalid);
  CHECK(contains(request.sentence(), "nothing orders the two"));
}

TEST_CASE("The state of one model feeds another one that has state of its own", "[model][state]") {
  const Context context = Context::open(test_device());
  const Recurrence first(context);
  const Recurrence second(context);
  PreparedModel writers = first.writer().prepare({.slots = 2});
  PreparedModel consumers = second.writer().prepare({.slots = 2, .forms = {kDeviceHost}});
  const DeviceTensor memory = first.model.state(first.state).view(TensorDesc(DType::u8, {kCount}));
  std::int64_t before = 0;
  std::int64_t expected = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Inference run = step(writers, seed);
    Inference consumed = consumers.acquire(in_a_minute()).value().submit({memory});
    before = Recurrence::after({seed}, before);
    Values word(sizeof(before));
    std::memcpy(word.data(), &before, sizeof(before));
    expected = digest_of(word, expected, 0);
    CHECK(shown(consumed) == expected);
    CHECK(shown(run) == before);
  }
}

TEST_CASE("Fragments of one graph share their model's state in the order of their recording",
          "[model][state][S59][S67]") {
  const Context context = Context::open(test_device());
  const Recurrence recurrence(context);
  // Scratch that takes turns leaves state alone.
  const ModelFragment writer = recurrence.writer().reuse_private_scratch(trusted);
  PreparedModel pool = PreparedModel::prepare(context,
                                              [&](Context& home) {
                                                Graph graph(home, "two steps");
                                                const DeviceTensor a = graph.tensor(recurrence.x.desc, {.label = "a"});
                                                const DeviceTensor b = graph.tensor(recurrence.x.desc, {.label = "b"});
                                                const DeviceTensor y = writer.record(graph, {a}).front();
                                                const DeviceTensor z = writer.record(graph, {b}).front();
                                                return InferenceGraph{std::move(graph), {a, b}, {y, z}};
                                              },
                                              {.slots = 2});
  const Topology& topology = pool.topology();
  const auto is_state = [](const TopologyAllocation& allocation) {
    return allocation.kind == AllocationKind::state && allocation.label == "memory" && allocation.bytes == 8;
  };
  CHECK(std::ranges::count_if(topology.allocations, is_state) == 1);
  CHECK(contains(to_text(topology), "state \"memory\" 8 bytes"));
  std::int64_t before = 0;
  for (std::uint64_t round = 0; round < 5; ++round) {
    ModelSlot slot = pool.acquire(in_a_minute()).value();
    std::ranges::copy(fresh_bytes(kCount, 2 * round), slot.input<std::uint8_t>(0).begin());
    std::ranges::copy(fresh_bytes(kCount, 2 * round + 1), slot.input<std::uint8_t>(1).begin());
    Inference run = std::move(slot).submit();
    REQUIRE(run.wait(in_a_minute()));
    const auto y = run.output<std::uint8_t>(0);
    const auto z = run.output<std::uint8_t>(1);
    CHECK(word_of<std::int64_t>({y.begin(), y.end()}) == Recurrence::after({2 * round}, before));
    before = Recurrence::after({2 * round, 2 * round + 1}, before);
    CHECK(word_of<std::int64_t>({z.begin(), z.end()}) == before);
  }
  CHECK(recurrence.value() == before);
}

TEST_CASE("A graph that binds a model's state has it in common with the model's fragments", "[model][state]") {
  const Context context = Context::open(test_device());
  const Counter counter(context);
  PreparedModel pool = PreparedModel::prepare(context, [&](Context& home) {
    Graph graph(home, "tens");
    const DeviceTensor count = graph.bind(counter.model.state(counter.count));
    DeviceTensor y = counter.fragment().record(graph, {}).front();
    graph.fill(count, 0);
    return InferenceGraph{std::move(graph), {}, {std::move(y)}};
  });
  const auto labelled = [](const TopologyAllocation& allocation) { return allocation.label == "count"; };
  CHECK(std::ranges::count_if(pool.topology().allocations, labelled) == 1);
  for (int i = 0; i < 3; ++i) CHECK(counted(pool) == 1);  // The fill comes last and leaves zero for the next run.
  CHECK(counter.value() == 0);
}

TEST_CASE("A pool alone keeps the state of its model", "[model][state][S41][S72]") {
  const Context context = Context::open(test_device());
  std::optional<Counter> counter(std::in_place, context);
  std::optional<ModelFragment> fragment = counter->fragment();
  std::optional<PreparedModel> pool = fragment->prepare({.slots = 2});
  CHECK(counted(*pool) == 1);
  const std::uint64_t with_state = context.memory().requested.live_bytes;
  counter.reset();
  CHECK(counted(*pool) == 2);
  CHECK(context.memory().requested.live_bytes == with_state);
  pool.reset();
  pool = fragment->prepare();
  fragment.reset();
  CHECK(counted(*pool) == 3);
  pool.reset();
  CHECK(eventually([&] { return context.memory().requested.live_bytes == 0; }));
}

TEST_CASE("State outlives the last handle while runs that write it are in flight", "[model][state][B16][host-only]") {
  const std::shared_ptr<HostDevice> device = make_host_device();
  const ScopedDevice scoped(Device::host(), device);
  {
    const Context context = Context::open(Device::host());
    std::optional<Recurrence> recurrence(std::in_place, context);
    std::optional<PreparedModel> pool = recurrence->writer().prepare({.slots = 2});
    device->drain();
    device->hold();
    for (std::uint64_t i = 0; i < 2; ++i) static_cast<void>(step(*pool, i));
    static_cast<void>(recurrence->model.reset_state(recurrence->state));
    pool.reset();
    recurrence.reset();
    CHECK(context.memory().requested.live_bytes >= sizeof(std::int64_t));
    device->release();
    CHECK(eventually([&] { return context.memory().requested.live_bytes == 0; }));
  }
  device->drain();
  CHECK(device->violations().empty());
  CHECK(device->objects() == HostObjects{});
}

}  // namespace weft::test
