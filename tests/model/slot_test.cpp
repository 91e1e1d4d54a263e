#include "catch.h"
#include "runtime/memory_work.h"
#include "support/requests.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;

constexpr std::uint64_t kCount = 64;

/// y = x, after a while: for runs that are still in flight when a test looks.
struct SlowModel {
  explicit SlowModel(nanoseconds time, std::uint32_t slots = 1)
      : x(test.session.allocate<std::uint32_t>({kCount}, {.label = "x"})),
        y(test.session.allocate<std::uint32_t>({kCount}, {.label = "y"})),
        prepared(test.freeze()
                     .fragment(trusted, {.inputs = {x},
                                         .outputs = {y},
                                         .commands = {test.slow_copy(workload(kCount), x, y, std::uint64_t{kCount},
                                                                     static_cast<std::uint64_t>(time.count()))},
                                         .label = "slow"})
                     .prepare({.slots = slots})) {}

  Inference submit(std::uint32_t value) {
    std::optional<ModelSlot> slot = prepared.acquire(in_a_minute());
    std::ranges::fill(slot.value().input(x), value);
    return std::move(*slot).submit();
  }

  TestSession test;
  TypedRegion<std::uint32_t> x;
  TypedRegion<std::uint32_t> y;
  PreparedModel prepared;
};

template <class Call>
void check_moved_from(Call&& call, const char* sentence) {
  const Error error = refusal(call);
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == sentence);
}

}  // namespace

TEST_CASE("A pool hands out each slot once and again when it is dropped", "[model]") {
  PreparedModel prepared = XorModel(kCount).fragment.prepare({.slots = 3});
  CHECK(prepared.slots() == 3);
  CHECK(prepared.is_idle());
  std::vector<ModelSlot> slots;
  for (int i = 0; i < 3; ++i) slots.push_back(prepared.try_acquire().value());
  CHECK(!prepared.is_idle());
  CHECK(!prepared.try_acquire().has_value());
  slots.erase(slots.begin() + 1);
  std::optional<ModelSlot> again = prepared.try_acquire();
  CHECK(again.has_value());
  CHECK(!prepared.try_acquire().has_value());
  again.reset();
  slots.clear();
  CHECK(prepared.is_idle());
}

TEST_CASE("Acquire ends empty at its deadline", "[model]") {
  PreparedModel prepared = XorModel(kCount).fragment.prepare({.slots = 1, .spin = nanoseconds(0)});
  const std::optional<ModelSlot> slot = prepared.acquire(past());
  REQUIRE(slot.has_value());
  const auto start = steady_clock::now();
  CHECK(!prepared.acquire(start + milliseconds(20)).has_value());
  CHECK(steady_clock::now() >= start + milliseconds(20));
  CHECK(!prepared.acquire(past()).has_value());
}

TEST_CASE("Acquire returns when another thread gives a slot back", "[model]") {
  for (const nanoseconds spin : {nanoseconds(0), nanoseconds(milliseconds(200))}) {
    PreparedModel prepared = XorModel(kCount).fragment.prepare({.slots = 1, .spin = spin});
    std::optional<ModelSlot> slot = prepared.try_acquire();
    std::thread other([&] {
      std::this_thread::sleep_for(milliseconds(5));
      slot.reset();
    });
    CHECK(prepared.acquire(in_a_minute()).has_value());
    other.join();
  }
}

TEST_CASE("Any length of spinning and any deadline will do", "[model]") {
  for (const nanoseconds spin : {nanoseconds::min(), nanoseconds(-1), nanoseconds(0), nanoseconds::max()}) {
    PreparedModel prepared = XorModel(kCount).fragment.prepare({.slots = 1, .spin = spin});
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
    Inference run = submit(prepared, input);
    static_cast<void>(run.wait(Deadline::min()));
    REQUIRE(run.wait(Deadline::max()));
    CHECK(std::ranges::equal(run.output<std::uint8_t>(0), xored(input, 0xff)));
    CHECK(!prepared.acquire(steady_clock::now() + milliseconds(2)).has_value());
    CHECK(!prepared.acquire(Deadline::min()).has_value());
  }
}

TEST_CASE("A slot dropped with its run in flight comes back once the run has drained", "[model]") {
  SlowModel model(milliseconds(60));
  { const Inference dropped = model.submit(1); }
  CHECK(!model.prepared.try_acquire().has_value());
  CHECK(!model.prepared.is_idle());
  std::optional<ModelSlot> slot = model.prepared.acquire(in_a_minute());
  REQUIRE(slot.has_value());
  slot.reset();
  CHECK(model.prepared.is_idle());
  Inference run = model.submit(2);
  REQUIRE(run.wait(in_a_minute()));
  CHECK(std::ranges::all_of(run.output(model.y), [](std::uint32_t value) { return value == 2; }));
}

TEST_CASE("A wait polls with a deadline in the past and does not consume the run", "[model]") {
  SlowModel model(milliseconds(60));
  Inference run = model.submit(3);
  CHECK(!run.wait(past()));
  CHECK(!run.wait(steady_clock::now() + milliseconds(1)));
  REQUIRE(run.wait(in_a_minute()));
  CHECK(run.wait(past()));
  CHECK(run.wait(in_a_minute()));
  CHECK(run.output(model.y)[0] == 3);
}

TEST_CASE("What a request is given on the host may go as soon as its submit returns",
          "[model][R25][case-1][host-only]") {
  HeldContext held;
  const XorModel model(TestSession(held.context), 64, 0xff);
  PreparedModel pool = model.fragment.prepare({.forms = all_forms()});
  PreparedModel other = XorModel(TestSession(held.context), 64, 0x0f).fragment.prepare();
  for (std::uint64_t round = 0; round < 3; ++round) {
    const std::vector<std::uint8_t> expected = xored(fresh_bytes(64, round), 0xff);
    auto given = std::make_unique<std::vector<std::uint8_t>>(fresh_bytes(64, round));
    held.device->hold();
    std::optional<ModelSlot> slot = pool.acquire(in_a_minute());
    REQUIRE(slot.has_value());
    std::optional<Inference> run;
    if (round == 1) {
      run = std::move(*slot).submit({upload(held.context, *given)}, {.outputs = Side::host});
    } else {
      const std::array<std::span<const std::byte>, 1> spans{std::as_bytes(std::span(*given))};
      run = std::move(*slot).submit_host(spans);
    }
    std::ranges::fill(*given, std::uint8_t{0xee});
    given.reset();
    Inference between = submit(other, fresh_bytes(64, 50 + round));
    held.device->release();
    CHECK(result(between) == xored(fresh_bytes(64, 50 + round), 0x0f));
    CHECK(result(*run) == expected);
  }
}

TEST_CASE("Inputs that go behind their submits are in the answers", "[model][R25][case-1]") {
  XorModel model(64);
  PreparedModel pool = model.fragment.prepare({.slots = 2});
  std::optional<Inference> before;
  for (std::uint64_t round = 0; round < 100; ++round) {
    auto given = std::make_unique<std::vector<std::uint8_t>>(fresh_bytes(64, round));
    const std::array<std::span<const std::byte>, 1> spans{std::as_bytes(std::span(*given))};
    Inference run = pool.acquire(in_a_minute()).value().submit_host(spans);
    std::ranges::fill(*given, std::uint8_t{0xee});
    given.reset();
    if (before) CHECK(result(*before) == xored(fresh_bytes(64, round - 1), 0xff));
    before = std::move(run);
  }
  CHECK(result(*before) == xored(fresh_bytes(64, 99), 0xff));
}

TEST_CASE("An output is busy until its run is done", "[model][host-only]") {
  HeldContext held;
  PreparedModel pool = XorModel(TestSession(held.context), 64, 0xff).fragment.prepare();
  held.device->hold();
  Inference run = submit(pool, fresh_bytes(64, 1));
  const auto check_busy = [&] {
    const Error error = refusal([&] { static_cast<void>(run.output<std::uint8_t>(0)); });
    CHECK(error.code() == ErrorCode::busy);
    CHECK(error.sentence() == "The results are not ready; the run is not done yet.");
  };
  check_busy();
  CHECK(!run.wait(past()));
  check_busy();
  held.device->release();
  CHECK(eventually([&] { return run.completion().is_done(); }));
  CHECK(result(run) == xored(fresh_bytes(64, 1), 0xff));  // Whether or not a wait has said so.
}

TEST_CASE("An output stays as it is while its inference lives", "[model]") {
  PreparedModel prepared = XorModel(kCount).fragment.prepare({.slots = 2});
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  Inference kept = submit(prepared, input);
  REQUIRE(kept.wait(in_a_minute()));
  const std::span<const std::uint8_t> output = kept.output<std::uint8_t>(0);
  for (std::uint32_t round = 0; round < 50; ++round) {
    const std::vector<std::uint8_t> other = fresh_bytes(kCount, 100 + round);
    CHECK(infer(prepared, other) == xored(other, 0xff));
  }
  CHECK(std::ranges::equal(output, xored(input, 0xff)));
  Inference moved = std::move(kept);
  CHECK(std::ranges::equal(output, xored(input, 0xff)));
  CHECK(moved.output<std::uint8_t>(0).data() == output.data());
}

TEST_CASE("An output stays readable when the pool's handle is gone", "[model]") {
  std::optional<PreparedModel> prepared = XorModel(kCount).fragment.prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  Inference run = submit(*prepared, input);
  prepared.reset();
  CHECK(result(run) == xored(input, 0xff));
}

TEST_CASE("A slot keeps the bytes of its last request", "[model]") {
  XorModel model(kCount);
  PreparedModel prepared = model.fragment.prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  static_cast<void>(infer(prepared, input));
  CHECK(std::ranges::equal(prepared.try_acquire().value().input(model.x), input));
}

TEST_CASE("A slot is free as soon as its run has been waited for and dropped", "[model][B4][T34]") {
  PreparedModel prepared = XorModel(kCount).fragment.prepare();
  for (std::uint32_t round = 0; round < 2000; ++round) {
    std::optional<ModelSlot> slot = prepared.try_acquire();
    REQUIRE(slot.has_value());
    Inference run = std::move(*slot).submit();
    REQUIRE(run.wait(in_a_minute()));
  }
}

TEST_CASE("All slots are in flight together and are waited for out of order", "[model][T1]") {
  constexpr std::uint32_t kSlots = 5;
  PreparedModel prepared = XorModel(kCount).fragment.prepare({.slots = kSlots});
  constexpr std::uint32_t kSeed = 11;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  for (std::uint32_t round = 0; round < 40; ++round) {
    std::vector<std::pair<std::vector<std::uint8_t>, Inference>> runs;
    for (std::uint32_t i = 0; i < kSlots; ++i) {
      std::vector<std::uint8_t> input = fresh_bytes(kCount, round * kSlots + i);
      Inference run = submit(prepared, input);
      runs.emplace_back(std::move(input), std::move(run));
    }
    CHECK(!prepared.try_acquire().has_value());
    std::shuffle(runs.begin(), runs.end(), random);
    for (auto& [input, run] : runs) CHECK(result(run) == xored(input, 0xff));
  }
}

TEST_CASE("Moved-from slots and inferences refuse every call", "[model]") {
  XorModel model(kCount);
  PreparedModel prepared = model.fragment.prepare({.slots = 2});
  ModelSlot slot = prepared.try_acquire().value();
  ModelSlot taken = std::move(slot);
  check_moved_from([&] { static_cast<void>(slot.input<std::uint8_t>(0)); }, "The slot is moved from.");
  check_moved_from([&] { static_cast<void>(slot.input(model.x)); }, "The slot is moved from.");
  check_moved_from([&] { static_cast<void>(std::move(slot).submit()); }, "The slot is moved from.");
  Inference run = std::move(taken).submit();
  check_moved_from([&] { static_cast<void>(std::move(taken).submit()); }, "The slot is moved from.");
  Inference kept = std::move(run);
  check_moved_from([&] { static_cast<void>(run.wait(past())); }, "The inference is moved from.");
  check_moved_from([&] { static_cast<void>(run.output<std::uint8_t>(0)); }, "The inference is moved from.");
  check_moved_from([&] { static_cast<void>(run.output(model.y)); }, "The inference is moved from.");
  CHECK(kept.wait(in_a_minute()));
}

TEST_CASE("Assigning over a slot or an inference gives its lease back", "[model]") {
  PreparedModel prepared = XorModel(kCount).fragment.prepare({.slots = 2});
  ModelSlot slot = prepared.try_acquire().value();
  slot = prepared.try_acquire().value();
  ModelSlot other = prepared.try_acquire().value();
  Inference run = std::move(slot).submit();
  REQUIRE(run.wait(in_a_minute()));
  run = std::move(other).submit();
  REQUIRE(run.wait(in_a_minute()));
  CHECK(prepared.try_acquire().has_value());
}

TEST_CASE("Another element type or index or region of an input or output is refused", "[model]") {
  XorModel model(kCount);
  PreparedModel prepared = model.fragment.prepare();
  ModelSlot slot = prepared.try_acquire().value();
  const auto check_refused = [](const auto& call, const char* sentence) {
    const Error error = refusal(call);
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
  };
  check_refused([&] { static_cast<void>(slot.input<float>(0)); }, "The input 0 is u8[64]; it is asked for as f32.");
  check_refused([&] { static_cast<void>(slot.input<std::uint8_t>(1)); }, "There is no input 1; the model has 1.");
  check_refused([&] { static_cast<void>(slot.input(model.y)); }, "The region is none of the fragment's inputs.");
  Inference run = std::move(slot).submit();
  check_refused([&] { static_cast<void>(run.output<std::int8_t>(0)); },
                "The output 0 is u8[64]; it is asked for as i8.");
  check_refused([&] { static_cast<void>(run.output<std::uint8_t>(7)); }, "There is no output 7; the model has 1.");
  check_refused([&] { static_cast<void>(run.output(model.x)); }, "The region is none of the fragment's outputs.");
  CHECK(run.wait(in_a_minute()));
}

TEST_CASE("A region that is listed twice takes an index", "[model][S24]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  PreparedModel prepared =
      test.freeze()
          .fragment(trusted, {.inputs = {x, x}, .outputs = {x, x}, .commands = {fill(x.slice(0, 1), 5)}})
          .prepare();
  ModelSlot slot = prepared.try_acquire().value();
  CHECK(refusal([&] { static_cast<void>(slot.input(x)); }).sentence() ==
        "The region is listed as 2 inputs; it takes an index to tell them apart.");
  std::ranges::fill(slot.input<std::uint8_t>(0), std::uint8_t{1});
  std::ranges::fill(slot.input<std::uint8_t>(1), std::uint8_t{2});
  Inference run = std::move(slot).submit();
  REQUIRE(run.wait(in_a_minute()));
  CHECK(refusal([&] { static_cast<void>(run.output(x)); }).sentence() ==
        "The region is listed as 2 outputs; it takes an index to tell them apart.");
  std::vector<std::uint8_t> expected(kCount, 2);
  expected[0] = 5;
  CHECK(std::ranges::equal(run.output<std::uint8_t>(0), expected));
  CHECK(std::ranges::equal(run.output<std::uint8_t>(1), expected));
}

TEST_CASE("Private memory starts at zero and stays from run to run and slot to slot", "[model]") {
  TestSession test;
  const auto n = test.session.allocate<std::uint32_t>({1}, {.label = "n"});
  const auto y = test.session.allocate<std::uint32_t>({1}, {.label = "y"});
  PreparedModel prepared =
      test.freeze()
          .fragment(trusted, {.outputs = {y},
                              .commands = {test.increment(grid(1), n, std::uint32_t{1}),
                                           test.slow_copy(workload(1), n, y, std::uint64_t{1}, std::uint64_t{0})}})
          .prepare({.slots = 2});
  for (std::uint32_t round = 1; round <= 10; ++round) {
    Inference first = std::move(*prepared.try_acquire()).submit();
    Inference second = std::move(*prepared.try_acquire()).submit();
    REQUIRE(first.wait(in_a_minute()));
    REQUIRE(second.wait(in_a_minute()));
    CHECK(first.output(y)[0] == round);
    CHECK(second.output(y)[0] == round);
  }
}

}  // namespace weft::test
