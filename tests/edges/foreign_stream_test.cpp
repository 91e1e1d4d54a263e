#include "foreign_stream.h"

#include "catch.h"
#include "device/faults.h"
#include "submission.h"
#include "support/call_count.h"
#include "support/foreign_stream.h"
#include "support/requests.h"
#include <weft/completion_source.h>
#include <weft/error.h>
#include <weft/weft.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

// Other people's streams through the seam, as weft/cuda.h has them by CUDA's types.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;
constexpr std::uint64_t kSeeds = 12;
using Values = std::vector<std::uint8_t>;

Values repeated(std::uint8_t value) { return Values(kCount, value); }

/// A held device with a pool of one slot that puts its output out as a tensor, and a consumer.
struct Consumer {
  explicit Consumer(HostOptions options = {}) : held({}, options) {}
  ~Consumer() { held.device->drain(); }
  Consumer(const Consumer&) = delete;
  Consumer& operator=(const Consumer&) = delete;

  /// A request that is done, on a device that is held then.
  [[nodiscard]] Inference finished(const Values& input) {
    Inference run = start(pool, kHostDevice, input);
    REQUIRE(run.wait(in_a_minute()));
    held.device->hold();
    return run;
  }

  HeldContext held;
  Context context = held.context;
  PreparedModel pool = XorModel(TestSession(context), kCount, 0xff).fragment.prepare({.forms = {kHostDevice}});
  ForeignStream stream{context};
  DeviceTensor sink = ready(context, repeated(0));
};

/// What a producer came to that failed.
Completion failed_work(const Context& context) {
  CompletionSource source(context, "tokens");
  source.fail(std::make_exception_ptr(std::runtime_error("no tokens")));
  return source.completion();
}

Completion scope(const Context& context, const ForeignStream& stream, const std::vector<foreign::Use>& uses,
                 const std::function<void()>& callback, const std::vector<Completion>& after = {},
                 Deadline deadline = {}) {
  return foreign::scoped(*ContextAccess::state(context), stream.handle(), uses, after, deadline, callback);
}

/// What a stream that is to follow the work is told while another thread cancels that; nothing where it follows.
std::optional<ErrorCode> follow_while_cancelled(const ForeignStream& stream, const Completion& work,
                                                std::uint64_t looks) {
  std::atomic<bool> is_cancelling{false};
  std::thread other([&] {
    is_cancelling = true;
    static_cast<void>(work.cancel());
  });
  while (!is_cancelling) std::this_thread::yield();
  for (; looks > 0; --looks) static_cast<void>(is_cancelling.load());
  std::optional<ErrorCode> code;
  try {
    foreign::wait_for(stream.handle(), work);
  } catch (const Error& error) {
    code = error.code();
  }
  other.join();
  return code;
}

UniqueEvent mark(const ForeignStream& stream, const Context& context) {
  return foreign::record(*ContextAccess::state(context), stream.handle());
}

}  // namespace

TEST_CASE("A slot whose lease was released against a stream is free at once and its next run waits for that stream",
          "[edges][interop][R22][case-13][host-only]") {
  for (std::uint64_t seed = 0; seed < 2 * kSeeds; ++seed) {
    INFO("seed " << seed);
    Consumer test({.shuffled = true, .seed = seed});
    std::optional<Inference> run = test.finished(fresh_bytes(kCount, 1));
    std::optional<DeviceTensor> output = run->tensor(0);
    test.stream.copy(test.sink, *output);
    if (seed % 2 == 0) {
      run.reset();
      foreign::release(*output, test.stream.handle(), Access::read);
      CHECK(output->desc().is_empty());
    } else {
      output.reset();
      foreign::release(std::move(*run), test.stream.handle());
      CHECK(refusal([&] { static_cast<void>(run->wait(past())); }).sentence() == "The inference is moved from.");
    }
    std::optional<ModelSlot> slot = test.pool.try_acquire();
    REQUIRE(slot.has_value());
    CHECK(!test.stream.has_drained());
    std::ranges::copy(fresh_bytes(kCount, 2), slot->input<std::uint8_t>(0).begin());
    Inference next = std::move(*slot).submit();
    test.held.device->drain();
    REQUIRE(next.wait(in_a_minute()));
    CHECK(values(test.sink) == xored(fresh_bytes(kCount, 1), 0xff));
    CHECK(values(next.tensor(0)) == xored(fresh_bytes(kCount, 2), 0xff));
  }
}

TEST_CASE("Consumers of released leases read their own request in every legal order",
          "[edges][interop][R22][case-13][host-only]") {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    INFO("seed " << seed);
    Consumer test({.shuffled = true, .seed = seed});
    std::vector<DeviceTensor> sinks;
    for (std::uint64_t round = 0; round < 20; ++round) sinks.push_back(ready(test.context, repeated(0)));
    for (std::uint64_t round = 0; round < sinks.size(); ++round) {
      Inference run = start(test.pool, kHostDevice, fresh_bytes(kCount, seed * 100 + round));
      foreign::wait_for(test.stream.handle(), run.completion());
      test.stream.copy(sinks[round], run.tensor(0));
      foreign::release(std::move(run), test.stream.handle());
    }
    test.stream.wait();
    for (std::uint64_t round = 0; round < sinks.size(); ++round)
      CHECK(values(sinks[round]) == xored(fresh_bytes(kCount, seed * 100 + round), 0xff));
  }
}

TEST_CASE("Requests and their consumers on another stream agree", "[edges][interop][R22][case-13]") {
  XorModel model(kCount);
  PreparedModel pool = model.fragment.prepare({.slots = 2, .forms = {kHostDevice}});
  const Context& context = pool.context();
  const ForeignStream stream(context);
  std::vector<DeviceTensor> sinks;
  for (std::uint64_t round = 0; round < 100; ++round) {
    sinks.push_back(ready(context, repeated(0)));
    Inference run = start(pool, kHostDevice, fresh_bytes(kCount, round));
    foreign::wait_for(stream.handle(), run.completion());
    stream.copy(sinks.back(), run.tensor(0));
    foreign::release(std::move(run), stream.handle());
  }
  stream.wait();
  for (std::uint64_t round = 0; round < sinks.size(); ++round)
    CHECK(values(sinks[round]) == xored(fresh_bytes(kCount, round), 0xff));
  CHECK(eventually([&] { return pool.is_idle(); }));
}

TEST_CASE("Other leases of a slot keep it when one is released against a stream", "[edges][interop][R22]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare({.forms = {kHostDevice}});
  const ForeignStream stream(pool.context());
  Inference run = start(pool, kHostDevice, fresh_bytes(kCount, 1));
  REQUIRE(run.wait(in_a_minute()));
  std::optional<DeviceTensor> view = run.tensor(0).view(bytes_desc(4), 4);
  foreign::release(std::move(run), stream.handle());
  CHECK(!pool.try_acquire().has_value());
  foreign::release(*view, stream.handle(), Access::read);
  CHECK(pool.try_acquire().has_value());
}

TEST_CASE("An output that the host writes over in place keeps its slot until the consumer has read it",
          "[edges][interop][R22][host-only]") {
  for (const RequestForm form : {kHostHost, kHostDevice}) {
    const HeldContext held;
    TestSession test(held.context);
    const auto x = test.session.allocate<std::uint32_t>({kCount / 4}, {.label = "x", .placement = Placement::shared});
    PreparedModel pool =
        test.freeze()
            .fragment(trusted, {.inputs = {x}, .outputs = {x}, .commands = {test.increment(grid(1), x, 1u)}})
            .prepare({.forms = {form}});
    const ForeignStream stream(held.context);
    const DeviceTensor sink = held.context.tensor(x.desc);
    REQUIRE(sink.wait(in_a_minute()));
    const auto write = [](ModelSlot& slot, std::uint32_t value) {
      std::ranges::fill(slot.input<std::uint32_t>(0), value);
    };
    std::optional<ModelSlot> slot = pool.try_acquire();
    REQUIRE(slot.has_value());
    write(*slot, 7);
    const DeviceAddress place = reinterpret_cast<DeviceAddress>(slot->input<std::uint32_t>(0).data());
    Inference run = std::move(*slot).submit();
    REQUIRE(run.wait(in_a_minute()));
    held.device->hold();
    check(stream.api().copy(stream.handle(), {address_of(sink), place, kCount}), "copy");
    foreign::release(std::move(run), stream.handle());
    CHECK(!pool.try_acquire().has_value());
    CHECK(!pool.is_idle());
    held.device->release();
    slot = pool.acquire(in_a_minute());
    REQUIRE(slot.has_value());
    CHECK(stream.has_drained());
    write(*slot, 9);
    CHECK(values(sink)[0] == 8);
    CHECK(values(sink)[4] == 7);
  }
}

TEST_CASE("What was copied to a tensor is overwritten behind the consumer of the request",
          "[edges][interop][R22][host-only]") {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    INFO("seed " << seed);
    const HeldContext held(seed);
    PreparedModel pool = XorModel(TestSession(held.context), kCount, 0xff).fragment.prepare({.forms = {kHostDevice}});
    const ForeignStream stream(held.context);
    const DeviceTensor target = ready(held.context, repeated(0));
    const DeviceTensor sink = ready(held.context, repeated(0));
    const DeviceTensor other = ready(held.context, repeated(9));
    Inference run = start(pool, kHostDevice, fresh_bytes(kCount, seed), {target});
    foreign::wait_for(stream.handle(), run.completion());
    stream.copy(sink, target);
    foreign::release(std::move(run), stream.handle());
    const DeviceTensor over = other.copy_into(target);
    REQUIRE(over.wait(in_a_minute()));
    CHECK(stream.has_drained());
    CHECK(values(sink) == xored(fresh_bytes(kCount, seed), 0xff));
    CHECK(values(target) == repeated(9));
  }
}

TEST_CASE("A tensor in a buffer that is released against a stream is overwritten behind it",
          "[edges][interop][R22][host-only]") {
  const HeldContext held;
  const ForeignStream stream(held.context);
  const DeviceTensor source = ready(held.context, repeated(1));
  const DeviceTensor sink = ready(held.context, repeated(0));
  const DeviceTensor other = ready(held.context, repeated(9));
  held.device->hold();
  stream.copy(sink, source);
  DeviceTensor lent = source;
  foreign::release(lent, stream.handle(), Access::read);
  const DeviceTensor over = other.copy_into(source);
  const DeviceTensor reader = source.copy_into(held.context.tensor(source.desc()));
  CHECK(!over.completion().is_done());
  held.device->drain();
  REQUIRE(over.wait(in_a_minute()));
  REQUIRE(reader.wait(in_a_minute()));
  CHECK(values(sink) == repeated(1));
  CHECK(values(reader) == repeated(9));
}

TEST_CASE("A lease of a run that waits for the host is not released against a stream", "[edges][interop][R22]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare({.forms = {kHostDevice}});
  const ForeignStream stream(pool.context());
  CompletionSource source(pool.context(), "tokens");
  std::optional<ModelSlot> slot = pool.try_acquire();
  REQUIRE(slot.has_value());
  std::ranges::copy(fresh_bytes(kCount, 1), slot->input<std::uint8_t>(0).begin());
  Inference run = std::move(*slot).submit({.after = {source.completion()}});
  DeviceTensor output = run.tensor(0);
  const auto code = [&](const auto& call) { return refusal(call).code(); };
  CHECK(code([&] { foreign::wait_for(stream.handle(), run.completion()); }) == ErrorCode::busy);
  CHECK(code([&] { foreign::release(std::move(run), stream.handle()); }) == ErrorCode::busy);
  CHECK(code([&] { foreign::release(output, stream.handle(), Access::read); }) == ErrorCode::busy);
  REQUIRE(source.complete());
  REQUIRE(run.wait(in_a_minute()));
  CHECK(values(output) == xored(fresh_bytes(kCount, 1), 0xff));
  foreign::release(std::move(run), stream.handle());
  foreign::release(output, stream.handle(), Access::read);
  CHECK(pool.try_acquire().has_value());
}

TEST_CASE("A stream follows a run and work that failed gives it its error", "[edges][interop]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare({.forms = {kHostDevice}});
  const Context& context = pool.context();
  const ForeignStream stream(context);
  const DeviceTensor sink = ready(context, repeated(0));
  const Inference run = start(pool, kHostDevice, fresh_bytes(kCount, 3));
  foreign::wait_for(stream.handle(), run.completion());
  foreign::wait_for(stream.handle(), Completion());
  stream.copy(sink, run.tensor(0));
  stream.wait();
  foreign::wait_for(stream.handle(), run.completion());  // Done by now.
  CHECK(values(sink) == xored(fresh_bytes(kCount, 3), 0xff));
  CHECK(refusal([&] { foreign::wait_for(stream.handle(), failed_work(context)); }).code() == ErrorCode::failed);
}

TEST_CASE("The next run of a slot follows an event or a stream that it is told to wait for",
          "[edges][interop][host-only]") {
  for (const bool by_event : {false, true}) {
    const HeldContext held;
    PreparedModel pool = XorModel(TestSession(held.context), kCount, 0xff).fragment.prepare({.forms = {kDeviceHost}});
    const ForeignStream stream(held.context);
    const DeviceTensor input = ready(held.context, repeated(0));
    held.device->hold();
    stream.fill(input, 5);
    std::optional<ModelSlot> slot = pool.try_acquire();
    REQUIRE(slot.has_value());
    const UniqueEvent event = mark(stream, held.context);
    if (by_event) {
      foreign::wait_for(*slot, foreign::adopt(*ContextAccess::state(held.context), event.get()));
    } else {
      foreign::wait_for(*slot, event);
    }
    Inference run = std::move(*slot).submit({input});
    CHECK(!run.completion().is_done());
    held.device->drain();
    CHECK(result(run) == repeated(5 ^ 0xff));
  }
}

TEST_CASE("Runs that wait for a stream see what was queued there in every legal order", "[edges][interop][host-only]") {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    INFO("seed " << seed);
    const HeldContext held(seed);
    PreparedModel pool =
        XorModel(TestSession(held.context), kCount, 0xff).fragment.prepare({.slots = 2, .forms = {kDeviceHost}});
    const ForeignStream stream(held.context);
    std::vector<DeviceTensor> inputs;
    for (int i = 0; i < 2; ++i) inputs.push_back(ready(held.context, repeated(0)));
    held.device->hold();
    stream.fill(inputs[0], 1);
    stream.fill(inputs[1], 2);
    std::optional<ModelSlot> slot = pool.try_acquire();
    foreign::wait_for(*slot, mark(stream, held.context));
    Inference first = std::move(*slot).submit({inputs[0]});
    slot = pool.try_acquire();
    const Completion queued = foreign::completion(*ContextAccess::state(held.context), mark(stream, held.context));
    Inference second = std::move(*slot).submit({inputs[1]}, SubmitOptions{.after = {queued}});
    CHECK(!queued.is_done());
    held.device->drain();
    CHECK(result(first) == repeated(1 ^ 0xff));
    CHECK(result(second) == repeated(2 ^ 0xff));
    CHECK(queued.wait(in_a_minute()));
  }
}

TEST_CASE("Copies never stand behind work outside weft", "[edges][interop][host-only]") {
  const HeldContext held;
  ContextState& state = *ContextAccess::state(held.context);
  const ForeignStream stream(held.context);
  const DeviceTensor blocked = ready(held.context, repeated(0));
  const DeviceTensor source = ready(held.context, repeated(3));
  held.device->hold();
  stream.fill(blocked, 1);
  std::vector<Completion> outside;
  for (int i = 0; i < 20; ++i) outside.push_back(foreign::completion(state, mark(stream, held.context)));
  const auto runs_on = [](const Completion& work) { return CompletionAccess::submission(work)->describe(); };
  for (int i = 0; i < 8; ++i) {
    const DeviceTensor copy = source.copy_into(held.context.tensor(source.desc()));
    CHECK(runs_on(copy.completion()) == "running copies");
  }
  for (const Completion& work : outside) CHECK(runs_on(work) == "running work outside weft");
  held.device->drain();
  for (const Completion& work : outside) CHECK(work.wait(in_a_minute()));
}

TEST_CASE("A stream that the device does not know is refused", "[edges][interop][host-only]") {
  const Context context = open_context();
  ContextState& state = *ContextAccess::state(context);
  const Error error = refusal([&] { static_cast<void>(foreign::record(state, StreamHandle{99})); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.contexts() == std::vector<std::string>{"joining a stream of somebody else"});
  CHECK(refusal([&] { static_cast<void>(foreign::adopt(state, EventHandle{99})); }).code() == ErrorCode::invalid);
  CHECK(refusal([&] {
          static_cast<void>(foreign::scoped(state, StreamHandle{99}, {}, {}, past(), [] { FAIL("called"); }));
        }).code() == ErrorCode::invalid);
}

TEST_CASE("A scope reserves its bytes while its callback runs and its work is in order after",
          "[edges][interop][R40][T40]") {
  const Context context = open_context();
  const ForeignStream stream(context);
  const Buffer buffer = context.allocate(2 * kCount, {.label = "b", .placement = Placement::shared});
  const DeviceTensor written = buffer.tensor(bytes_desc(kCount));
  const DeviceTensor apart = buffer.tensor(bytes_desc(kCount), kCount);
  const DeviceTensor ones = ready(context, repeated(1));
  bool called = false;
  {
    const std::optional<ReadGuard> guard = buffer.map_read(in_a_minute());
    REQUIRE(guard.has_value());
    const Error busy = refusal([&] {
      static_cast<void>(scope(context, stream, {{written, Access::write}}, [&] { called = true; }));
    });
    CHECK(busy.code() == ErrorCode::busy);
    CHECK(contains(busy.sentence(), "The host maps the buffer \"b\" for reading"));
    CHECK(!called);
  }
  const auto is_busy = [&](const auto& call) { return refusal(call).code() == ErrorCode::busy; };
  std::optional<DeviceTensor> beside;
  const Completion done = scope(context, stream, {{written, Access::write}, {ones, Access::read}}, [&] {
    called = true;
    CHECK(is_busy([&] { static_cast<void>(ones.copy_into(written)); }));
    CHECK(is_busy([&] { static_cast<void>(written.copy_into(ready(context, repeated(0)))); }));
    CHECK(is_busy([&] { static_cast<void>(apart.copy_into(ones)); }));
    CHECK(is_busy([&] { static_cast<void>(buffer.map_read(in_a_minute())); }));
    CHECK(is_busy([&] { static_cast<void>(buffer.map_write(in_a_minute())); }));
    CHECK(is_busy([&] { static_cast<void>(written.download()); }));
    CHECK(!buffer.try_map_read().has_value());
    CHECK(is_busy([&] { static_cast<void>(scope(context, stream, {{written, Access::read}}, [] {})); }));
    std::thread([&] { called = called && is_busy([&] { static_cast<void>(ones.copy_into(written)); }); }).join();
    beside = ones.copy_into(apart);  // Bytes apart, and readers of what is read.
    stream.copy(written, ones);
    stream.fill(written.view(bytes_desc(1)), 7);
  });
  CHECK(called);
  REQUIRE(done.wait(in_a_minute()));
  CHECK(stream.has_drained());
  Values expected = repeated(1);
  expected[0] = 7;
  CHECK(values(written) == expected);
  REQUIRE(beside->wait(in_a_minute()));
  CHECK(values(apart) == repeated(1));
  CHECK(buffer.map_write(in_a_minute()).has_value());
}

TEST_CASE("What the callback of a scope throws passes on and its work is in order nevertheless",
          "[edges][interop][R40][T40][host-only]") {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    INFO("seed " << seed);
    const HeldContext held(seed);
    const ForeignStream stream(held.context);
    const DeviceTensor target = ready(held.context, repeated(1));
    held.device->hold();
    CHECK_THROWS_AS(static_cast<void>(scope(held.context, stream, {{target, Access::write}},
                                            [&] {
                                              stream.fill(target, 5);
                                              throw std::out_of_range("no row");
                                            })),
                    std::out_of_range);
    const DeviceTensor copy = target.copy_into(held.context.tensor(target.desc()));
    CHECK(!copy.completion().is_done());
    held.device->drain();
    REQUIRE(copy.wait(in_a_minute()));
    CHECK(values(copy) == repeated(5));
    CHECK(values(target) == repeated(5));
  }
}

TEST_CASE("A scope stands between the work before it and the work after it in every legal order",
          "[edges][interop][R40][R14][host-only]") {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    INFO("seed " << seed);
    const HeldContext held(seed);
    const ForeignStream stream(held.context);
    const DeviceTensor a = ready(held.context, repeated(1));
    const DeviceTensor b = ready(held.context, repeated(2));
    const DeviceTensor c = ready(held.context, repeated(3));
    held.device->hold();
    static_cast<void>(b.copy_into(a));
    const Completion scoped =
        scope(held.context, stream, {{a, Access::read}, {c, Access::write}}, [&] { stream.copy(c, a); });
    const DeviceTensor read = c.copy_into(held.context.tensor(c.desc()));
    const Completion second = scope(held.context, stream, {{a, Access::write}}, [&] { stream.fill(a, 9); });
    CHECK(!scoped.is_done());
    held.device->drain();
    REQUIRE(read.wait(in_a_minute()));
    REQUIRE(second.wait(in_a_minute()));
    CHECK(values(read) == repeated(2));
    CHECK(values(a) == repeated(9));
  }
}

TEST_CASE("A scope behind a failed producer is not called and poisons nothing", "[edges][interop][R12][R40][T26]") {
  const Context context = open_context();
  const ForeignStream stream(context);
  const DeviceTensor target = ready(context, repeated(1));
  const std::vector<Completion> after{failed_work(context)};
  const Error error = refusal([&] {
    static_cast<void>(scope(
        context, stream, {{target, Access::write}}, [] { FAIL("called"); }, after));
  });
  CHECK(error.code() == ErrorCode::failed);
  CHECK(contains(error.what(), "no tokens"));
  CHECK(values(target) == repeated(1));
  const Completion next = scope(context, stream, {{target, Access::write}}, [&] { stream.fill(target, 4); });
  REQUIRE(next.wait(in_a_minute()));
  CHECK(values(target) == repeated(4));
}

TEST_CASE("A scope waits for producers of the host until its deadline", "[edges][interop][R40]") {
  const Context context = open_context();
  const ForeignStream stream(context);
  const DeviceTensor target = ready(context, repeated(1));
  CompletionSource source(context, "tokens");
  const auto fill = [&] { stream.fill(target, 4); };
  const Error late = refusal([&] {
    static_cast<void>(scope(context, stream, {{target, Access::write}}, fill, {source.completion()}, past()));
  });
  CHECK(late.code() == ErrorCode::busy);
  CHECK(values(target) == repeated(1));
  std::thread completes([&] { source.complete(); });
  const Completion done = scope(context, stream, {{target, Access::write}}, fill, {source.completion()}, in_a_minute());
  completes.join();
  REQUIRE(done.wait(in_a_minute()));
  CHECK(values(target) == repeated(4));
}

TEST_CASE("A scope stands behind a copy of its bytes that waits for the host", "[edges][interop][R40][R12]") {
  XorModel model(kCount);
  PreparedModel pool = model.fragment.prepare({.forms = {kHostDevice}});
  const Context& context = pool.context();
  const ForeignStream stream(context);
  const DeviceTensor target = ready(context, repeated(1));
  CompletionSource source(context, "tokens");
  std::optional<ModelSlot> slot = pool.try_acquire();
  std::ranges::copy(repeated(0), slot->input<std::uint8_t>(0).begin());
  Inference run = std::move(*slot).submit(SubmitOptions{.into = {target}, .after = {source.completion()}});
  const auto fill = [&] { stream.fill(target.view(bytes_desc(1)), 4); };
  CHECK(refusal([&] {
          static_cast<void>(scope(context, stream, {{target, Access::write}}, fill, {}, past()));
        }).code() == ErrorCode::busy);
  std::thread completes([&] { source.complete(); });
  const Completion done = scope(context, stream, {{target, Access::write}}, fill, {}, in_a_minute());
  completes.join();
  REQUIRE(done.wait(in_a_minute()));
  Values expected = repeated(0xff);
  expected[0] = 4;
  CHECK(values(target) == expected);
}

TEST_CASE("A run that waits for the host follows what was queued outside before its launch",
          "[edges][interop][R12][host-only]") {
  const HeldContext held;
  const ForeignStream stream(held.context);
  PreparedModel pool = XorModel(TestSession(held.context), kCount, 0xff).fragment.prepare({.forms = {kHostDevice}});
  const DeviceTensor target = ready(held.context, repeated(1));
  const DeviceTensor sink = ready(held.context, repeated(0));
  CompletionSource source(held.context, "tokens");
  std::optional<ModelSlot> slot = pool.try_acquire();
  std::ranges::copy(repeated(0), slot->input<std::uint8_t>(0).begin());
  Inference run = std::move(*slot).submit(SubmitOptions{.into = {target}, .after = {source.completion()}});
  held.device->hold();
  stream.copy(sink, target);
  DeviceTensor lent = target;
  foreign::release(lent, stream.handle(), Access::read);
  REQUIRE(source.complete());
  REQUIRE(eventually([&] { return run.completion().profile().launched.has_value(); }));
  CHECK(held.device->step() == 1);
  CHECK(stream.has_drained());
  held.device->drain();
  REQUIRE(run.wait(in_a_minute()));
  CHECK(values(sink) == repeated(1));
  CHECK(values(target) == repeated(0xff));
}

TEST_CASE("Tensors and work of another context are refused by a scope", "[edges][interop][R12][R40][T40]") {
  const Context context = open_context();
  const Context other = open_context();
  const ForeignStream stream(context);
  const DeviceTensor foreign = ready(other, repeated(1));
  const auto never = [] { FAIL("called"); };
  const Error tensor = refusal([&] { static_cast<void>(scope(context, stream, {{foreign, Access::read}}, never)); });
  CHECK(tensor.code() == ErrorCode::invalid);
  CHECK(tensor.sentence() == "A tensor that the callback uses belongs to another context.");
  CompletionSource source(other, "tokens");
  CHECK(refusal([&] { static_cast<void>(scope(context, stream, {}, never, {source.completion()})); }).code() ==
        ErrorCode::invalid);
  Graph graph(context);
  const DeviceTensor unprepared = graph.tensor<std::uint8_t>({4});
  CHECK(refusal([&] {
          static_cast<void>(scope(context, stream, {{unprepared, Access::read}}, never));
        }).code() == ErrorCode::invalid);
  CHECK(refusal([&] { static_cast<void>(scope(context, stream, {}, {})); }).code() == ErrorCode::invalid);
}

TEST_CASE("A scope over a leased output keeps the slot until its work is done",
          "[edges][interop][R22][R40][host-only]") {
  Consumer test;
  {
    const Inference run = test.finished(fresh_bytes(kCount, 1));
    const DeviceTensor output = run.tensor(0);
    static_cast<void>(scope(test.context, test.stream, {{output, Access::read}, {test.sink, Access::write}},
                            [&] { test.stream.copy(test.sink, output); }));
  }
  CHECK(!test.pool.try_acquire().has_value());
  test.held.device->release();
  CHECK(eventually([&] { return test.pool.try_acquire().has_value(); }));
  CHECK(values(test.sink) == xored(fresh_bytes(kCount, 1), 0xff));
}

TEST_CASE("Bytes whose scope cannot be fenced stay reserved", "[edges][interop][R40][host-only]") {
  const Context context = open_context();
  const DeviceTensor target = ready(context, repeated(1));
  const DeviceTensor ones = ready(context, repeated(1));
  ContextState& state = *ContextAccess::state(context);
  StreamHandle stream{};
  check(state.api().create_stream(stream), "create a stream");
  const Error error = refusal([&] {
    static_cast<void>(foreign::scoped(state, stream, {{target, Access::write}}, {}, past(),
                                      [&] { check(state.api().destroy_stream(stream), "destroy it"); }));
  });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.contexts().back() == "fencing what a callback queued, whose bytes stay reserved now");
  CHECK(refusal([&] { static_cast<void>(ones.copy_into(target)); }).code() == ErrorCode::busy);
  CHECK(values(ones) == repeated(1));
}

TEST_CASE("A fence that fails on the way waits for the stream instead", "[edges][interop][R40][host-only]") {
  const auto host = make_host_device();
  std::uint64_t created = 0;
  {
    const auto counting = std::make_shared<CountingDevice>(host);
    const ScopedDevice scoped(Device::host(), counting);
    const Context context = Context::open(Device::host());
    const DeviceTensor target = ready(context, repeated(1));
    const ForeignStream stream(context);
    created = counting->count(Verb::create_event);
  }
  const ScopedDevice scoped(
      Device::host(), std::make_shared<FailingDevice>(host, Verb::create_event, created, StatusCode::out_of_memory));
  const Context context = Context::open(Device::host());
  const DeviceTensor target = ready(context, repeated(1));
  const ForeignStream stream(context);
  const Completion done = scope(context, stream, {{target, Access::write}}, [&] { stream.fill(target, 6); });
  CHECK(done.is_done());
  CHECK(stream.has_drained());
  CHECK(values(target) == repeated(6));
}

TEST_CASE("A scope that finds no memory for its fence waits for the stream instead", "[edges][interop][R40]") {
  const Context context = open_context();
  const DeviceTensor target = ready(context, repeated(1));
  const DeviceTensor ones = ready(context, repeated(1));
  const ForeignStream stream(context);
  const bool throws = GENERATE(false, true);
  const std::runtime_error thrown("The callback of the test throws.");  // It takes memory to make.
  bool is_short = true;
  for (std::uint64_t n = 1; is_short; ++n) {
    INFO("allocation " << n << (throws ? ", behind a callback that throws" : ""));
    Completion done;
    bool has_thrown = false;
    try {
      done = scope(context, stream, {{target, Access::write}}, [&] {
        stream.fill(target, 6);
        call_count.failing_new = n;
        if (throws) throw thrown;
      });
    } catch (const std::runtime_error&) {
      has_thrown = true;
    }
    is_short = call_count.failing_new == 0;
    call_count.failing_new = 0;
    CHECK(has_thrown == throws);
    // Not reserved any more, and in order.
    CHECK(done.wait(in_a_minute()));
    CHECK(values(target) == repeated(6));
    CHECK(values(ones.copy_into(target)) == repeated(1));
  }
}

TEST_CASE("A stream that is to follow a run which is being cancelled follows it or is told so",
          "[edges][interop][R17][host-only]") {
  Consumer test;
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    test.held.device->hold();
    const Completion work = start(test.pool, kHostDevice, fresh_bytes(kCount, 1)).completion();
    const std::optional<ErrorCode> code = follow_while_cancelled(test.stream, work, random() % 1000);
    REQUIRE((!code || code == ErrorCode::cancelled));
    REQUIRE(test.stream.has_drained() == code.has_value());
    test.held.device->drain();
  }
}

TEST_CASE("A stream that is to follow a run which waits for the host and is being cancelled is told so",
          "[edges][interop][R17]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare();
  const ForeignStream stream(pool.context());
  std::mt19937_64 random(1);
  for (int round = 0; round < 500; ++round) {
    CompletionSource source(pool.context(), "tokens");
    const Inference run = pool.acquire(in_a_minute()).value().submit({.after = {source.completion()}});
    const std::optional<ErrorCode> code = follow_while_cancelled(stream, run.completion(), random() % 1000);
    REQUIRE((code == ErrorCode::busy || code == ErrorCode::cancelled));
  }
}

TEST_CASE("A graph that is handed out computes without weft and counts no run of it", "[edges][interop]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare({.forms = all_forms()});
  const ForeignStream stream(pool.context());
  DeviceApi& api = stream.api();
  for (std::size_t form = 0; form < all_forms().size(); ++form) {
    std::optional<ModelSlot> slot = pool.acquire(in_a_minute());
    REQUIRE(slot.has_value());
    const foreign::Graph made = foreign::graph(pool, *slot, form);
    const UniqueExecutable executable =
        instantiate(ContextAccess::state(pool.context())->domain()->api(), made.graph.get());
    REQUIRE(made.inputs.size() == 1);
    REQUIRE(made.outputs.size() == 1);
    const Values input = fresh_bytes(kCount, form);
    Values output(kCount);
    const auto place = [](void* pointer) { return reinterpret_cast<DeviceAddress>(pointer); };
    check(api.copy(stream.handle(), {place(made.inputs[0]), reinterpret_cast<DeviceAddress>(input.data()), kCount}),
          "copy in");
    for (int i = 0; i < 3; ++i) check(api.launch(executable.get(), stream.handle()), "launch");
    check(api.copy(stream.handle(), {reinterpret_cast<DeviceAddress>(output.data()), place(made.outputs[0]), kCount}),
          "copy out");
    stream.wait();
    CHECK(output == xored(input, 0xff));
    slot.reset();
    for (const RequestForm& own : all_forms()) {
      Inference run = start(pool, own, fresh_bytes(kCount, 7));
      REQUIRE(run.wait(in_a_minute()));
      CHECK(answer(run, own) == xored(fresh_bytes(kCount, 7), 0xff));
    }
    CHECK(pool.is_idle());
  }
}

TEST_CASE("A graph of another slot or form than the model's is refused", "[edges][interop]") {
  PreparedModel pool = XorModel(kCount).fragment.prepare();
  PreparedModel other = XorModel(kCount).fragment.prepare();
  std::optional<ModelSlot> slot = pool.try_acquire();
  CHECK(refusal([&] { static_cast<void>(foreign::graph(pool, *slot, 1)); }).sentence() ==
        "There is no request form 1; the model is prepared for 1.");
  CHECK(refusal([&] { static_cast<void>(foreign::graph(other, *slot, 0)); }).sentence() ==
        "The slot belongs to another prepared model.");
  static_cast<void>(std::move(*slot).submit());
  CHECK(refusal([&] { static_cast<void>(foreign::graph(pool, *slot, 0)); }).sentence() == "The slot is moved from.");
  CHECK(refusal([&] { static_cast<void>(foreign::context_of(*slot)); }).sentence() == "The slot is moved from.");
}

}  // namespace weft::test
