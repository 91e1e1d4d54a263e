#include "catch.h"
#include "device/host/host_device.h"
#include "support/requests.h"
#include <weft/completion_source.h>
#include <weft/error.h>
#include <weft/weft.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// Requests behind what the host does: accepted at once, launched when it is done, and not at all when it fails.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

std::vector<std::uint8_t> flipped(std::vector<std::uint8_t> values) { return xored(values, 0xff); }

/// A pool for every form, and a source that requests follow.
struct Followed {
  explicit Followed(std::uint32_t slots = 2) : pool(model.fragment.prepare({.slots = slots, .forms = all_forms()})) {}

  [[nodiscard]] Context context() const { return model.fragment.context(); }
  /// A request from the host with outputs on the device, which follows the source.
  [[nodiscard]] Inference start_after(const std::vector<std::uint8_t>& input, std::vector<DeviceTensor> into = {}) {
    std::optional<ModelSlot> slot = pool.acquire(in_a_minute());
    REQUIRE(slot.has_value());
    std::ranges::copy(input, slot->input<std::uint8_t>(0).begin());
    return std::move(*slot).submit({.outputs = Side::device, .into = std::move(into), .after = {source.completion()}});
  }

  XorModel model = XorModel(kCount);
  PreparedModel pool;
  CompletionSource source{model.fragment.context(), "gate"};
};

void fail(CompletionSource& source) { CHECK(source.fail(std::make_exception_ptr(std::runtime_error("no luck")))); }

}  // namespace

TEST_CASE("A request runs once what it follows on the host is complete", "[model][after][R12]") {
  Followed followed;
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  Inference run = followed.start_after(input);
  CHECK(!run.wait(past()));
  CHECK(run.completion().poll() == CompletionStatus::pending);
  CHECK(run.completion().profile().submitted.has_value());
  CHECK(!run.completion().profile().launched.has_value());
  // Requests that follow nothing pass it.
  CHECK(infer(followed.pool, input) == flipped(input));
  CHECK(followed.source.complete());
  REQUIRE(run.wait(in_a_minute()));
  CHECK(run.completion().profile().launched.has_value());
  CHECK(values(run.tensor(0)) == flipped(input));
}

TEST_CASE("A request does not run when what it follows fails and its memory is as it was",
          "[model][after][R12][T26][B18]") {
  Followed followed(1);
  const DeviceTensor into = ready(followed.context(), fresh_bytes(kCount, 7));
  std::optional<Inference> run = followed.start_after(fresh_bytes(kCount, 1), {into});
  fail(followed.source);
  const Error error = refusal([&] { static_cast<void>(run->wait(in_a_minute())); });
  CHECK(error.code() == ErrorCode::failed);
  CHECK(contains(error.what(),
                 "It does not run, since what it follows failed: The work ended while waiting for \"gate\": "
                 "no luck"));
  CHECK(error.cause() != nullptr);
  CHECK(run->completion().poll() == CompletionStatus::failed);
  CHECK(values(into) == fresh_bytes(kCount, 7));
  run.reset();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 2);
  CHECK(infer(followed.pool, input) == flipped(input));
}

TEST_CASE("A request does not run when what it follows is cancelled", "[model][after][R12][R17]") {
  Followed followed;
  Inference run = followed.start_after(fresh_bytes(kCount, 1));
  CHECK(followed.source.completion().cancel());
  const Error error = refusal([&] { static_cast<void>(run.wait(in_a_minute())); });
  CHECK(error.code() == ErrorCode::cancelled);
  CHECK(contains(error.what(), "It does not run, since what it follows was cancelled"));
}

TEST_CASE("A request behind what has failed is refused and its slot serves", "[model][after][R12][T26]") {
  Followed followed(1);
  fail(followed.source);
  std::optional<ModelSlot> slot = followed.pool.try_acquire();
  REQUIRE(slot.has_value());
  const SubmitOptions options{.after = {followed.source.completion()}};
  const Error error = refusal([&] { static_cast<void>(std::move(*slot).submit(options)); });
  CHECK(error.code() == ErrorCode::failed);
  CHECK(contains(error.what(), "While running graph"));
  CHECK(contains(error.what(), "no luck"));
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 3);
  std::ranges::copy(input, slot->input<std::uint8_t>(0).begin());
  Inference run = std::move(*slot).submit();
  CHECK(result(run) == flipped(input));
}

TEST_CASE("A request behind a completion of another context is refused", "[model][after][R12]") {
  Followed followed;
  const Context other = open_context();
  CompletionSource foreign(other, "foreign");
  std::optional<ModelSlot> slot = followed.pool.try_acquire();
  REQUIRE(slot.has_value());
  const Error error = refusal([&] { static_cast<void>(std::move(*slot).submit({.after = {foreign.completion()}})); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.what(), "belongs to another context"));
}

TEST_CASE("All that is made of a request which waits follows it", "[model][after][R12][R28]") {
  Followed followed(3);
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  Inference first = followed.start_after(input);
  const DeviceTensor output = first.tensor(0);
  const DeviceTensor copy = output.copy_into(followed.context().tensor(bytes_desc(kCount)));
  const DeviceTensor both = followed.context().concatenate({output, copy});
  Readback readback = both.download();
  std::optional<ModelSlot> slot = followed.pool.acquire(in_a_minute());
  REQUIRE(slot.has_value());
  Inference second = std::move(*slot).submit({output}, {.outputs = Side::host});
  for (const Completion& completion : {copy.completion(), both.completion(), second.completion()}) {
    CHECK(completion.poll() == CompletionStatus::pending);
    CHECK(!completion.profile().launched.has_value());
  }
  CHECK(!readback.wait(past()));
  SECTION("It runs") {
    CHECK(followed.source.complete());
    CHECK(result(second) == input);
    REQUIRE(readback.wait(in_a_minute()));
    std::vector<std::uint8_t> twice = flipped(input);
    const std::vector<std::uint8_t> once = twice;
    twice.insert(twice.end(), once.begin(), once.end());
    const auto bytes = readback.bytes(0);
    CHECK(std::ranges::equal(bytes, std::as_bytes(std::span(twice))));
  }
  SECTION("It fails") {
    fail(followed.source);
    for (const Completion& completion : {copy.completion(), both.completion(), second.completion()}) {
      const Error error = refusal([&] { static_cast<void>(completion.wait(in_a_minute())); });
      CHECK(error.code() == ErrorCode::failed);
      CHECK(contains(error.what(), "no luck"));
    }
    CHECK(refusal([&] { static_cast<void>(readback.wait(in_a_minute())); }).code() == ErrorCode::failed);
    CHECK(refusal([&] { static_cast<void>(readback.bytes(0)); }).code() == ErrorCode::failed);
  }
}

TEST_CASE("What touches the bytes of a request which waits comes after it", "[model][after][R13][T28][T32]") {
  Followed followed(3);
  const DeviceTensor shared = ready(followed.context(), fresh_bytes(kCount, 9));
  std::optional<Inference> writer = followed.start_after(fresh_bytes(kCount, 1), {shared});
  // Knows of the bytes alone: the tensor tells of nothing that is pending.
  const std::vector<std::uint8_t> second = fresh_bytes(kCount, 2);
  Inference reader = start(followed.pool, kDeviceHost, second);
  CHECK(result(reader) == flipped(second));  // Other bytes do not wait.
  std::optional<ModelSlot> slot = followed.pool.acquire(in_a_minute());
  REQUIRE(slot.has_value());
  Inference follower = std::move(*slot).submit({shared}, {.outputs = Side::host});
  writer.reset();  // Detached: it still runs.
  CHECK(!follower.wait(past()));
  CHECK(!follower.completion().profile().launched.has_value());
  SECTION("It reads what the request wrote") {
    CHECK(followed.source.complete());
    CHECK(result(follower) == fresh_bytes(kCount, 1));
  }
  SECTION("It reads what was there before where the request is cancelled") {
    CHECK(followed.source.completion().cancel());
    CHECK(result(follower) == flipped(fresh_bytes(kCount, 9)));
  }
}

TEST_CASE("The host maps memory of a request which waits after its run", "[model][after][R3]") {
  Followed followed;
  const Buffer buffer = followed.context().allocate(kCount, {.label = "shared", .placement = Placement::shared});
  REQUIRE(buffer.tensor(bytes_desc(kCount)).wait(in_a_minute()));
  const Inference run = followed.start_after(fresh_bytes(kCount, 1), {buffer.tensor(bytes_desc(kCount))});
  CHECK(!buffer.try_map_read().has_value());
  CHECK(!buffer.map_write(past()).has_value());
  CHECK(followed.source.complete());
  const auto guard = buffer.map_read(in_a_minute());
  REQUIRE(guard.has_value());
  const std::vector<std::uint8_t> expected = flipped(fresh_bytes(kCount, 1));
  CHECK(std::ranges::equal(guard->bytes(), std::as_bytes(std::span(expected))));
}

TEST_CASE("A request which waits runs when all handles of its model are gone", "[model][after][R23][S72]") {
  std::optional<CompletionSource> source;
  std::optional<DeviceTensor> into;
  Completion completion;
  {
    Followed followed;
    into = ready(followed.context(), std::vector<std::uint8_t>(kCount, 0));
    completion = followed.start_after(fresh_bytes(kCount, 1), {*into}).completion();
    source = std::move(followed.source);
  }
  CHECK(completion.poll() == CompletionStatus::pending);
  CHECK(source->complete());
  CHECK(completion.wait(in_a_minute()));
  CHECK(values(*into) == flipped(fresh_bytes(kCount, 1)));
}

TEST_CASE("Who sees a request finished that waited finds its slot free", "[model][after][R18][B4]") {
  Followed followed(1);
  for (int i = 0; i < 300; ++i) {
    CompletionSource source(followed.context(), "gate");
    std::optional<ModelSlot> slot = followed.pool.try_acquire();
    REQUIRE(slot.has_value());
    std::optional<Inference> run = std::move(*slot).submit({.after = {source.completion()}});
    if (i % 3 == 0) {
      CHECK(source.complete());
      CHECK(run->wait(in_a_minute()));
    } else if (i % 3 == 1) {
      CHECK(source.fail(nullptr));
      CHECK(refusal([&] { static_cast<void>(run->wait(in_a_minute())); }).code() == ErrorCode::failed);
    } else {
      CHECK(source.completion().cancel());
      CHECK(refusal([&] { static_cast<void>(run->wait(in_a_minute())); }).code() == ErrorCode::cancelled);
    }
  }
}

TEST_CASE("A launch that is refused later is the outcome of its request", "[model][after][R12][host-only]") {
  HeldContext held;
  XorModel model(TestSession(held.context), kCount, 0xff);
  PreparedModel pool = model.fragment.prepare();
  CompletionSource source(held.context, "gate");
  std::optional<ModelSlot> slot = pool.try_acquire();
  REQUIRE(slot.has_value());
  Inference run = std::move(*slot).submit({.after = {source.completion()}});
  held.device->lose();
  CHECK(source.complete());
  const Error error = refusal([&] { static_cast<void>(run.wait(in_a_minute())); });
  CHECK(error.code() == ErrorCode::device_lost);
}

TEST_CASE("The error at the end of a long chain tells its cause once", "[model][after][R12][T26]") {
  const Context context = open_context();
  CompletionSource source(context, "gate");
  Completion last = source.completion();
  XorModel model(TestSession(context), kCount, 0xff);
  PreparedModel pool = model.fragment.prepare({.slots = 20, .forms = {kHostDevice}});
  std::vector<Inference> runs;
  for (int i = 0; i < 20; ++i) {
    std::optional<ModelSlot> slot = pool.try_acquire();
    REQUIRE(slot.has_value());
    runs.push_back(std::move(*slot).submit({.after = {last}}));
    last = runs.back().completion();
  }
  fail(source);
  const Error error = refusal([&] { static_cast<void>(last.wait(in_a_minute())); });
  CHECK(error.code() == ErrorCode::failed);
  CHECK(contains(error.what(), "no luck"));
  const std::string text = error.what();
  const std::string told = "It does not run, since what it follows failed";
  CHECK(text.find(told) == text.rfind(told));
  CHECK(text.size() < 1000);
}

}  // namespace weft::test
