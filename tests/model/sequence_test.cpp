#include "catch.h"
#include "device/faults.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_state.h"
#include "support/requests.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

// Requests of several pools that touch the same bytes follow one another as they were submitted, and others do not.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;
constexpr std::uint64_t kMillisecond = 1000000;

/// y = x, and y[0] one more, after a while.
struct Stage {
  Stage(const Context& context, std::uint64_t nanoseconds, PrepareOptions options)
      : Stage(TestSession(context), nanoseconds, std::move(options)) {}
  Stage(TestSession test, std::uint64_t nanoseconds, PrepareOptions options)
      : x(test.session.allocate<std::uint32_t>({kCount}, {.label = "x"})),
        y(test.session.allocate<std::uint32_t>({kCount}, {.label = "y"})),
        pool(test.freeze()
                 .fragment(trusted,
                           {.inputs = {x},
                            .outputs = {y},
                            .commands = {test.slow_copy(workload(kCount), x, y, std::uint64_t{kCount}, nanoseconds),
                                         test.increment(grid(1), y, std::uint32_t{1})},
                            .label = "stage"})
                 .prepare(std::move(options))) {}

  [[nodiscard]] ModelSlot slot() { return pool.acquire(in_a_minute()).value(); }
  [[nodiscard]] Inference submit(const DeviceTensor& input, SubmitOptions options = {}) {
    return slot().submit({input}, std::move(options));
  }

  TypedRegion<std::uint32_t> x;
  TypedRegion<std::uint32_t> y;
  PreparedModel pool;
};

DeviceTensor words(const Context& context, std::uint32_t value) {
  const std::vector<std::uint32_t> values(kCount, value);
  return context.upload({{DType::u32, {kCount}}, std::as_bytes(std::span(values)), "words"});
}

std::vector<std::uint32_t> words_of(const DeviceTensor& tensor) {
  const std::vector<std::uint8_t> bytes = values(tensor);
  std::vector<std::uint32_t> result(bytes.size() / sizeof(std::uint32_t));
  std::memcpy(result.data(), bytes.data(), bytes.size());
  return result;
}

std::vector<std::uint32_t> staged(std::uint32_t value, std::uint32_t stages) {
  std::vector<std::uint32_t> result(kCount, value);
  result[0] += stages;
  return result;
}

/// Sends `rounds` values through pools of one slot or two, one behind the other, and drops every handle at once but the
/// last. Tells how many answers were wrong.
std::uint32_t count_wrong(const Context& context, std::uint32_t stages, std::uint32_t slots, std::uint32_t rounds,
                          std::uint64_t nanoseconds) {
  std::deque<Stage> chain;
  for (std::uint32_t i = 0; i < stages; ++i) {
    const bool is_last = i + 1 == stages;
    chain.emplace_back(context, i % 2 == 0 ? nanoseconds : 0,
                       PrepareOptions{.slots = slots, .forms = {is_last ? kDeviceHost : kDeviceDevice}});
  }
  std::uint32_t wrong = 0;
  std::deque<std::pair<std::uint32_t, Inference>> runs;
  const auto check_first = [&] {
    auto& [value, run] = runs.front();
    REQUIRE(run.wait(in_a_minute()));
    if (!std::ranges::equal(run.output(chain.back().y), staged(value, stages))) ++wrong;
    runs.pop_front();
  };
  for (std::uint32_t round = 0; round < rounds; ++round) {
    DeviceTensor tensor = words(context, 1000 * round);
    for (std::uint32_t i = 0; i + 1 < stages; ++i) tensor = chain[i].submit(tensor).tensor(0);
    if (runs.size() == slots) check_first();
    runs.emplace_back(1000 * round, chain.back().submit(tensor));
  }
  while (!runs.empty()) check_first();
  return wrong;
}

/// A program of requests, copies and drops, drawn from a seed, over pools of a few slots and the cells of one buffer.
/// What it reads is what its steps would make one after the other.
class RandomProgram {
 public:
  RandomProgram(const Context& context, std::uint32_t seed)
      : context_(context),
        random_(seed),
        buffer_(context.allocate(
            kCells * kCell, {.label = "cells", .placement = seed % 2 == 0 ? Placement::device : Placement::shared})),
        cells_(kCells, std::vector<std::uint8_t>(kCell, 0)) {
    for (std::uint8_t i = 0; i < 3; ++i)
      pools_.push_back(XorModel(TestSession(context), kCell, mask(i))
                           .fragment.prepare({.slots = 1 + seed % 3, .forms = all_forms()}));
  }

  /// How many of the values that it read were wrong.
  std::uint32_t run(std::uint32_t steps) {
    for (std::uint32_t step = 0; step < steps; ++step) {
      switch (random_() % 8) {
        case 0:
          add_upload();
          break;
        case 1:
        case 2:
          request();
          break;
        case 3:
        case 4:
          request_into_cell();
          break;
        case 5:
          copy_to_cell();
          break;
        case 6:
          if (!values_.empty())
            values_.erase(values_.begin() + static_cast<std::ptrdiff_t>(random_() % values_.size()));
          break;
        default:
          check();
          break;
      }
    }
    for (std::uint64_t i = 0; i < kCells; ++i) compare(cell(i), cells_[i]);
    for (const auto& [tensor, expected] : values_) compare(tensor, expected);
    return wrong_;
  }

 private:
  static constexpr std::uint64_t kCells = 4;
  static constexpr std::uint64_t kCell = 37;
  struct Value {
    DeviceTensor tensor;
    std::vector<std::uint8_t> expected;
  };

  static std::uint8_t mask(std::size_t pool) { return static_cast<std::uint8_t>(0x11u << pool); }
  [[nodiscard]] DeviceTensor cell(std::uint64_t index) const {
    return buffer_.tensor(bytes_desc(kCell), index * kCell);
  }
  void compare(const DeviceTensor& tensor, const std::vector<std::uint8_t>& expected) {
    if (values(tensor) != expected) ++wrong_;
  }

  /// A tensor to read and what it holds: a cell or a kept value.
  [[nodiscard]] Value draw() {
    const std::uint64_t index = random_() % (kCells + values_.size());
    if (index < kCells) return {cell(index), cells_[index]};
    return values_[index - kCells];
  }

  /// A slot of a pool. Kept values hold slots: they go until one is free.
  [[nodiscard]] std::pair<std::size_t, ModelSlot> slot() {
    const std::size_t pool = random_() % pools_.size();
    std::optional<ModelSlot> taken = pools_[pool].try_acquire();
    while (!taken && !values_.empty()) {
      values_.erase(values_.begin());
      taken = pools_[pool].try_acquire();
    }
    if (!taken) taken = pools_[pool].acquire(in_a_minute());
    return {pool, std::move(taken.value())};
  }

  void request() {
    auto [pool, slot] = this->slot();
    const Value input = draw();
    Inference run = std::move(slot).submit({input.tensor}, {.outputs = Side::device});
    values_.push_back({run.tensor(0), xored(input.expected, mask(pool))});
  }

  void request_into_cell() {
    auto [pool, slot] = this->slot();
    const std::uint64_t target = random_() % kCells;
    if (random_() % 2 == 0) {
      const Value input = draw();
      static_cast<void>(std::move(slot).submit({input.tensor}, {.into = {cell(target)}}));
      cells_[target] = xored(input.expected, mask(pool));
    } else {
      const std::vector<std::uint8_t> bytes = fresh_bytes(kCell, random_());
      std::ranges::copy(bytes, slot.input<std::uint8_t>(0).begin());
      static_cast<void>(std::move(slot).submit(SubmitOptions{.into = {cell(target)}}));
      cells_[target] = xored(bytes, mask(pool));
    }
  }

  void copy_to_cell() {
    const Value source = draw();
    const std::uint64_t target = random_() % kCells;
    static_cast<void>(source.tensor.copy_into(cell(target)));
    cells_[target] = source.expected;
  }

  void add_upload() {
    std::vector<std::uint8_t> bytes = fresh_bytes(kCell, random_());
    DeviceTensor tensor = upload(context_, bytes);
    values_.push_back({std::move(tensor), std::move(bytes)});
  }

  void check() {
    const Value value = draw();
    compare(value.tensor, value.expected);
  }

  Context context_;
  std::mt19937 random_;
  Buffer buffer_;
  std::vector<std::vector<std::uint8_t>> cells_;
  std::vector<PreparedModel> pools_;
  std::deque<Value> values_;
  std::uint32_t wrong_ = 0;
};

/// Takes one wait between streams for given: the mutation that a test of order must find.
class WaitDroppingDevice final : public DeviceDecorator {
 public:
  WaitDroppingDevice(std::shared_ptr<DeviceApi> inner, std::uint64_t wait)
      : DeviceDecorator(std::move(inner)), wait_(wait) {}
  DeviceStatus wait_event(StreamHandle stream, EventHandle event) noexcept override {
    if (waits_++ == wait_) return {};
    return DeviceDecorator::wait_event(stream, event);
  }
  [[nodiscard]] std::uint64_t waits() const noexcept { return waits_; }

 private:
  const std::uint64_t wait_;
  std::atomic<std::uint64_t> waits_{0};
};

/// Fails the next call of one verb.
class ArmedDevice final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  std::optional<Verb> next;

 private:
  DeviceStatus before(Verb verb) noexcept override {
    if (next != verb) return {};
    next.reset();
    return {StatusCode::out_of_memory, 0, "an injected failure"};
  }
};

/// A host device to hold, in place of the suite's.
struct HeldHost {
  HeldHost() : HeldHost(HostOptions{}) {}
  explicit HeldHost(HostOptions options) : device(make_host_device(options)) {}
  ~HeldHost() { device->drain(); }

  std::shared_ptr<HostDevice> device;
  std::shared_ptr<CountingDevice> counting = std::make_shared<CountingDevice>(device);
  ScopedDevice scoped{Device::host(), counting};
  Context context = Context::open(Device::host());
};

}  // namespace

TEST_CASE("Consumers see their producers' values though every handle goes at once", "[model][R24][R28][T32]") {
  const Context context = Context::open(test_device());
  CHECK(count_wrong(context, 2, 1, 30, kMillisecond) == 0);
  CHECK(count_wrong(context, 2, 2, 30, kMillisecond) == 0);
  CHECK(count_wrong(context, 5, 2, 20, kMillisecond / 4) == 0);
}

TEST_CASE("Consumers see their producers' values in every legal order", "[model][host-only][R24][R28]") {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    INFO("seed " << seed);
    const std::shared_ptr<HostDevice> device = make_host_device({.shuffled = true, .seed = seed});
    {
      const ScopedDevice scoped(Device::host(), device);
      const Context context = Context::open(Device::host());
      CHECK(count_wrong(context, 2 + seed % 3, 1 + seed % 2, 8, 0) == 0);
    }
    device->drain();
    CHECK(device->violations().empty());
  }
}

TEST_CASE("Every wait between a producer and its consumer is noticed when it is missing", "[model][host-only][R24]") {
  const auto serve = [](std::uint64_t seed, std::uint64_t dropped, std::uint64_t& waits) {
    const std::shared_ptr<HostDevice> device = make_host_device({.shuffled = true, .seed = seed});
    const auto dropping = std::make_shared<WaitDroppingDevice>(device, dropped);
    std::vector<std::uint32_t> seen;
    {
      const ScopedDevice scoped(Device::host(), dropping);
      const Context context = Context::open(Device::host());
      Stage first(context, 0, {.forms = {kDeviceDevice}});
      Stage second(context, 0, {.forms = {kDeviceDevice}});
      Stage third(context, 0, {.forms = {kDeviceDevice}});
      const DeviceTensor input = words(context, 5);
      const DeviceTensor other = words(context, 9);
      const DeviceTensor output = context.tensor(input.desc());
      device->drain();
      device->hold();
      // A reader behind its producer, a writer behind a reader, and a copy behind a writer.
      const DeviceTensor hidden = first.submit(input).tensor(0);
      static_cast<void>(second.submit(hidden, {.into = {output}}));
      static_cast<void>(third.submit(other, {.into = {input}}));
      Readback readback = output.download();
      waits = dropping->waits();
      device->drain();
      REQUIRE(readback.wait(in_a_minute()));
      const std::span<const std::byte> bytes = readback.bytes(0);
      seen.resize(kCount);
      std::memcpy(seen.data(), bytes.data(), bytes.size());
    }
    return seen == staged(5, 2);
  };
  std::uint64_t waits = 0;
  REQUIRE(serve(0, ~std::uint64_t{0}, waits));
  REQUIRE(waits == 3);
  for (std::uint64_t dropped = 0; dropped < 3; ++dropped) {
    INFO("wait " << dropped);
    bool is_noticed = false;
    std::uint64_t seen = 0;
    for (std::uint64_t seed = 0; seed < 200 && !is_noticed; ++seed) is_noticed = !serve(seed, dropped, seen);
    CHECK(is_noticed);
  }
}

TEST_CASE("Random programs over chained pools give the answers of their list order", "[model][R13][R24][R28]") {
  for (std::uint32_t seed = 0; seed < 12; ++seed) {
    INFO("seed " << seed);
    CHECK(RandomProgram(Context::open(test_device()), seed).run(250) == 0);
  }
}

TEST_CASE("Random programs over chained pools give the same answers in every legal order",
          "[model][host-only][R13][R24][R28]") {
  for (std::uint32_t seed = 0; seed < 30; ++seed) {
    INFO("seed " << seed);
    const std::shared_ptr<HostDevice> device = make_host_device({.shuffled = true, .seed = seed});
    {
      const ScopedDevice scoped(Device::host(), device);
      CHECK(RandomProgram(Context::open(Device::host()), 100 + seed).run(120) == 0);
    }
    device->drain();
    CHECK(device->violations().empty());
    CHECK(device->objects() == HostObjects{});
  }
}

TEST_CASE("Two pools that write one buffer do so in the order of their submission", "[model][R13][T28]") {
  const Context context = Context::open(test_device());
  Stage slow(context, 5 * kMillisecond, {.forms = {kDeviceDevice}});
  Stage fast(context, 0, {.forms = {kDeviceDevice}});
  const DeviceTensor target = context.allocate(kCount * 4, {.label = "target"}).tensor({DType::u32, {kCount}});
  const DeviceTensor one = words(context, 100);
  const DeviceTensor two = words(context, 200);
  for (int round = 0; round < 5; ++round) {
    static_cast<void>(slow.submit(one, {.into = {target}}));
    static_cast<void>(fast.submit(two, {.into = {target}}));
    CHECK(words_of(target) == staged(200, 1));
    static_cast<void>(fast.submit(two, {.into = {target}}));
    static_cast<void>(slow.submit(one, {.into = {target}}));
    CHECK(words_of(target) == staged(100, 1));
    // A reader before the writer reads what was there.
    Inference reader = slow.submit(target);
    static_cast<void>(fast.submit(two, {.into = {target}}));
    CHECK(words_of(reader.tensor(0)) == staged(100, 2));
    CHECK(words_of(target) == staged(200, 1));
  }
}

TEST_CASE("Requests on bytes apart and readers of the same bytes wait for none", "[model][host-only][R14][R24]") {
  HeldHost host;
  Stage a(host.context, 0, {.slots = 2, .forms = {kDeviceDevice}});
  Stage b(host.context, 0, {.slots = 2, .forms = {kDeviceDevice}});
  const DeviceTensor memory = host.context.allocate(3 * kCount * 4).tensor({DType::u32, {3 * kCount}});
  const TensorDesc desc(DType::u32, {kCount});
  const DeviceTensor input = memory.view(desc, 0);
  const DeviceTensor low = memory.view(desc, kCount * 4);
  const DeviceTensor high = memory.view(desc, 2 * kCount * 4);
  REQUIRE(memory.wait(in_a_minute()));
  host.device->drain();
  host.device->hold();
  host.counting->reset();
  static_cast<void>(a.submit(input, {.into = {low}}));
  static_cast<void>(b.submit(input, {.into = {high}}));
  CHECK(host.counting->count(Verb::wait_event) == 0);
  CHECK(host.counting->count(Verb::record_event) == 0);
  CHECK(host.counting->total() == 2);
  static_cast<void>(a.submit(low, {.into = {high}}));  // Behind both.
  CHECK(host.counting->count(Verb::wait_event) == 2);
  CHECK(host.counting->count(Verb::launch) == 3);
}

TEST_CASE("What has finished is waited for no more", "[model][R24]") {
  const auto counting = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), counting);
  const Context context = Context::open(test_device());
  Stage a(context, 0, {.forms = {kDeviceDevice}});
  Stage b(context, 0, {.forms = {kDeviceDevice}});
  const DeviceTensor input = words(context, 1);
  const DeviceTensor output = context.tensor(input.desc());
  REQUIRE(input.wait(in_a_minute()));
  REQUIRE(output.wait(in_a_minute()));
  counting->reset();
  for (int i = 0; i < 20; ++i) {
    Inference run = (i % 2 == 0 ? a : b).submit(input, {.into = {output}});
    REQUIRE(run.completion().wait(in_a_minute()));
  }
  CHECK(counting->count(Verb::launch) == 20);
  CHECK(counting->count(Verb::wait_event) == 0);
  CHECK(words_of(output) == staged(1, 1));
}

TEST_CASE("A guard of the host refuses the requests that conflict and no others", "[model][R3][R11][T31]") {
  const Context context = Context::open(test_device());
  Stage stage(context, 0, {.slots = 2, .forms = {kDeviceDevice}});
  const Buffer buffer = context.allocate(kCount * 4, {.label = "mapped", .placement = Placement::shared});
  const DeviceTensor mapped = buffer.tensor({DType::u32, {kCount}});
  const DeviceTensor other = words(context, 3);
  REQUIRE(other.wait(in_a_minute()));
  const auto refuse = [&](const DeviceTensor& input, std::vector<DeviceTensor> into, const char* sentence) {
    ModelSlot slot = stage.slot();
    const Error error = check_refusal_changes_nothing(
        [&] { return ModelState(context, stage.pool); },
        [&] { static_cast<void>(std::move(slot).submit({input}, {.into = std::move(into)})); });
    CHECK(error.code() == ErrorCode::busy);
    CHECK(error.sentence() == sentence);
    Inference run = std::move(slot).submit({other});
    CHECK(words_of(run.tensor(0)) == staged(3, 1));
  };
  {
    const std::optional<ReadGuard> reader = buffer.map_read(in_a_minute());
    const std::optional<ReadGuard> second = buffer.try_map_read();
    REQUIRE(second.has_value());
    refuse(other, {mapped},
           "The host maps the buffer \"mapped\" for reading; a submission that writes it waits for the guard to go.");
    Inference run = stage.submit(mapped);
    CHECK(words_of(run.tensor(0)) == staged(0, 1));
  }
  {
    std::optional<WriteGuard> writer = buffer.map_write(in_a_minute());
    refuse(mapped, {},
           "The host maps the buffer \"mapped\" for writing; a submission that reads it waits for the guard to go.");
    refuse(other, {mapped},
           "The host maps the buffer \"mapped\" for writing; a submission that writes it waits for the guard to go.");
    const std::vector<std::uint32_t> values(kCount, 40);
    std::memcpy(writer.value().bytes().data(), values.data(), kCount * 4);
  }
  Inference run = stage.submit(mapped, {.into = {mapped}});
  const std::optional<ReadGuard> reader = buffer.map_read(in_a_minute());  // Waits for the run.
  std::vector<std::uint32_t> seen(kCount);
  std::memcpy(seen.data(), reader.value().bytes().data(), kCount * 4);
  CHECK(seen == staged(40, 1));
}

TEST_CASE("A request in flight keeps the host from a conflicting map", "[model][host-only][R3][T31]") {
  HeldHost host;
  Stage stage(host.context, 0, {.slots = 2, .forms = {kDeviceDevice}});
  const Buffer buffer = host.context.allocate(kCount * 4, {.label = "m", .placement = Placement::shared});
  const DeviceTensor tensor = buffer.tensor({DType::u32, {kCount}});
  const DeviceTensor other = words(host.context, 3);
  host.device->drain();
  host.device->hold();
  Inference reading = stage.submit(tensor);
  CHECK(buffer.try_map_read().has_value());
  CHECK(!buffer.try_map_write().has_value());
  Inference writing = stage.submit(other, {.into = {tensor}});
  CHECK(!buffer.try_map_read().has_value());
  CHECK(!buffer.map_read(past()).has_value());
  host.device->drain();
  CHECK(buffer.try_map_write().has_value());
  CHECK(buffer.try_map_read().has_value());
}

TEST_CASE("Slots that work on one buffer outside them take turns", "[model][R13][S72]") {
  const Context context = Context::open(test_device());
  TestSession test(context);
  const auto n = test.session.allocate<std::uint32_t>({1}, {.label = "n"});
  const auto h = test.session.allocate<std::uint32_t>({1}, {.label = "h"});
  const auto copy = [&](const Region& from, const Region& to) {
    return test.slow_copy(workload(1), from, to, std::uint64_t{1}, std::uint64_t{20000});
  };
  // n = n + 1 by way of the slot's own h, so that turns which overlap lose counts.
  const ModelFragment fragment = test.freeze().fragment(
      trusted, {.inputs = {n}, .commands = {copy(n, h), test.increment(grid(1), h, std::uint32_t{1}), copy(h, n)}});
  Buffer buffer = context.allocate(12, {.label = "counter"});
  const DeviceTensor counter = buffer.tensor({DType::u32, {1}}, 4);
  PreparedModel pool = PreparedModel::prepare(context,
                                              [&](Context& home) {
                                                Graph graph(home, "count");
                                                static_cast<void>(fragment.record(graph, {counter}));
                                                return InferenceGraph{std::move(graph), {}, {}};
                                              },
                                              {.slots = 4});
  CHECK(pool.topology().allocations[0].kind == AllocationKind::external);
  constexpr std::uint32_t kRuns = 60;
  for (std::uint32_t i = 0; i < kRuns; ++i) static_cast<void>(pool.acquire(in_a_minute()).value().submit());
  CHECK(words_of(counter) == std::vector<std::uint32_t>{kRuns});
  CHECK(words_of(buffer.tensor({DType::u32, {3}})) == std::vector<std::uint32_t>{0, kRuns, 0});
}

TEST_CASE("What a dropped pool had comes back though the buffers that it used live on", "[model][B3][S72]") {
  const Context context = Context::open(test_device());
  const DeviceTensor input = words(context, 1);
  const DeviceTensor output = context.tensor(input.desc());
  REQUIRE(input.wait(in_a_minute()));
  REQUIRE(output.wait(in_a_minute()));
  const std::vector<std::uint64_t> before = live(context);
  {
    Stage stage(context, 0, {.slots = 2, .forms = {kDeviceDevice, kHostHost}});
    Inference run = stage.submit(input, {.into = {output}});
    REQUIRE(run.wait(in_a_minute()));
    static_cast<void>(stage.submit(input, {.into = {output}}));  // In flight as the pool goes.
  }
  CHECK(eventually([&] { return live(context) == before; }));
  CHECK(words_of(output) == staged(1, 1));
}

TEST_CASE("A submission that the device refuses leaves nothing to wait for", "[model][R11][R27]") {
  for (const Verb verb : {Verb::launch, Verb::record_event, Verb::wait_event}) {
    INFO(to_string(verb));
    const auto armed = std::make_shared<ArmedDevice>(open_device(test_device()));
    const ScopedDevice scoped(test_device(), armed);
    const Context context = Context::open(test_device());
    Stage slow(context, 20 * kMillisecond, {.forms = {kDeviceDevice}});
    Stage stage(context, 0, {.forms = {kDeviceDevice}});
    const Buffer buffer = context.allocate(kCount * 4, {.label = "m", .placement = Placement::shared});
    const DeviceTensor tensor = buffer.tensor({DType::u32, {kCount}});
    const DeviceTensor input = words(context, 7);
    REQUIRE(input.wait(in_a_minute()));
    const DeviceTensor hidden = slow.submit(input).tensor(0);
    ModelSlot slot = stage.slot();
    armed->next = verb;
    const Error error = refusal([&] { static_cast<void>(std::move(slot).submit({hidden}, {.into = {tensor}})); });
    CHECK(error.code() == ErrorCode::out_of_memory);
    CHECK(buffer.try_map_write().has_value());  // The refused run is no user of it.
    Inference run = std::move(slot).submit({hidden}, {.into = {tensor}});
    CHECK(words_of(tensor) == staged(7, 2));
  }
}

TEST_CASE("Pools that are chained by their outputs go in any order with runs in flight", "[model][S72][B16][T46]") {
  constexpr std::uint32_t kSeed = 13;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 25; ++round) {
    std::optional<Context> context = Context::open(test_device());
    std::vector<std::optional<Stage>> stages(3);
    for (auto& stage : stages)
      stage.emplace(*context, kMillisecond / 5, PrepareOptions{.slots = 2, .forms = {kDeviceDevice}});
    std::optional<DeviceTensor> input = words(*context, 11);
    std::vector<std::optional<Inference>> runs;
    std::optional<DeviceTensor> tensor = input;
    for (auto& stage : stages) {
      runs.emplace_back(stage->submit(*tensor));
      tensor = runs.back()->tensor(0);
    }
    std::vector<std::function<void()>> drops{[&] { context.reset(); }, [&] { input.reset(); }};
    for (auto& stage : stages) drops.emplace_back([&stage] { stage.reset(); });
    for (auto& run : runs) drops.emplace_back([&run] { run.reset(); });
    std::ranges::shuffle(drops, random);
    for (const auto& drop : drops) drop();
    CHECK(words_of(*tensor) == staged(11, 3));
  }
}

TEST_CASE("Nothing is freed under a held device by pools that are chained", "[model][host-only][S72][B16]") {
  constexpr std::uint32_t kSeed = 14;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  for (int round = 0; round < 60; ++round) {
    const std::shared_ptr<HostDevice> device = make_host_device({.shuffled = round % 2 != 0, .seed = random()});
    const ScopedDevice scoped(Device::host(), device);
    {
      std::optional<Context> context = Context::open(Device::host());
      std::optional<Stage> first(std::in_place, *context, 0, PrepareOptions{.slots = 2, .forms = {kDeviceDevice}});
      std::optional<Stage> second(std::in_place, *context, 0, PrepareOptions{.forms = {kDeviceDevice}});
      std::optional<Buffer> buffer = context->allocate(
          kCount * 4, {.label = "bound", .placement = round % 3 == 0 ? Placement::shared : Placement::device});
      std::optional<PreparedModel> bound = PreparedModel::prepare(*context, [&](Context& home) {
        Graph graph(home);
        const DeviceTensor all = graph.bind(buffer->tensor(bytes_desc(kCount * 4)));
        graph.fill(all, 4);
        return InferenceGraph{std::move(graph), {}, {}};
      });
      std::optional<DeviceTensor> input = words(*context, 1);
      device->drain();
      device->hold();
      std::vector<std::optional<Inference>> runs;
      std::optional<DeviceTensor> hidden;
      runs.emplace_back(first->submit(*input));
      hidden = runs.back()->tensor(0);
      runs.emplace_back(second->submit(*hidden, {.into = {buffer->tensor({DType::u32, {kCount}})}}));
      runs.emplace_back(bound->try_acquire().value().submit());
      std::vector<std::function<void()>> drops{
          [&] { context.reset(); }, [&] { first.reset(); }, [&] { second.reset(); }, [&] { buffer.reset(); },
          [&] { bound.reset(); },   [&] { input.reset(); }, [&] { hidden.reset(); },
      };
      for (auto& run : runs) drops.emplace_back([&run] { run.reset(); });
      std::ranges::shuffle(drops, random);
      std::thread stepper;
      for (std::size_t i = 0; i < drops.size(); ++i) {
        // The last handle of the context waits for the device.
        if (i + 1 == drops.size()) {
          stepper = std::thread([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
            device->release();
          });
        }
        drops[i]();
        if (!stepper.joinable()) static_cast<void>(device->step(random() % 3));
      }
      stepper.join();
    }
    CHECK(device->violations().empty());
    device->drain();
    CHECK(device->objects() == HostObjects{});
  }
}

}  // namespace weft::test
