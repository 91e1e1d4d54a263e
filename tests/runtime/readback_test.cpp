#include "catch.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include <weft/error.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

std::vector<std::byte> bytes_of(const std::vector<std::uint8_t>& values) {
  std::vector<std::byte> bytes(values.size());
  std::ranges::transform(values, bytes.begin(), [](std::uint8_t value) { return std::byte{value}; });
  return bytes;
}

}  // namespace

TEST_CASE("A readback gives its tensor's bytes in place and as copies", "[runtime][readback][R29]") {
  const Context context = open_context();
  const std::vector<std::uint8_t> source = fresh_bytes(64, 1);
  for (const Placement placement : {Placement::device, Placement::shared}) {
    const DeviceTensor tensor = context.tensor({DType::u32, {4, 4}}, {.label = "t", .placement = placement});
    static_cast<void>(upload(context, source).view(tensor.desc()).copy_into(tensor));
    Readback readback = tensor.download();
    CHECK(readback.size() == 1);
    CHECK(readback.desc(0) == tensor.desc());
    REQUIRE(readback.wait(in_a_minute()));
    CHECK(readback.wait(past()));
    CHECK(std::ranges::equal(readback.bytes(0), bytes_of(source)));
    CHECK(readback.take() == std::vector<std::vector<std::byte>>{bytes_of(source)});
    std::vector<std::byte> into(64);
    const std::array<std::span<std::byte>, 1> outputs{into};
    CHECK(readback.read_into(outputs, past()));
    CHECK(into == bytes_of(source));
  }
}

TEST_CASE("An index beyond the last tensor of a readback is invalid", "[runtime][readback][R29]") {
  Readback readback = open_context().tensor(bytes_desc(8)).download();
  REQUIRE(readback.wait(in_a_minute()));
  const Error error = refusal([&] { static_cast<void>(readback.bytes(1)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The readback has 1 tensors; there is none at index 1.");
  CHECK(refusal([&] { static_cast<void>(readback.desc(1)); }).code() == ErrorCode::invalid);
}

TEST_CASE("Spans of another number or length are refused and nothing is written", "[runtime][readback][R29]") {
  Readback readback = open_context().tensor(bytes_desc(8)).download();
  std::vector<std::byte> eight(8, std::byte{7});
  std::vector<std::byte> nine(9, std::byte{7});
  const std::array<std::span<std::byte>, 2> two{eight, eight};
  const std::array<std::span<std::byte>, 1> longer{nine};
  const Error count = refusal([&] { static_cast<void>(readback.read_into(two, in_a_minute())); });
  CHECK(count.code() == ErrorCode::invalid);
  CHECK(count.sentence() == "The readback has 1 tensors; 2 spans are given to read them into.");
  const Error length = refusal([&] { static_cast<void>(readback.read_into(longer, in_a_minute())); });
  CHECK(length.code() == ErrorCode::invalid);
  CHECK(length.sentence() == "The span 0 to read into has 9 bytes; its tensor u8[8] has 8.");
  CHECK(eight == std::vector<std::byte>(8, std::byte{7}));
  CHECK(nine == std::vector<std::byte>(9, std::byte{7}));
  const std::array<std::span<std::byte>, 1> right{eight};
  CHECK(readback.read_into(right, in_a_minute()));
  CHECK(eight == std::vector<std::byte>(8, std::byte{0}));
}

TEST_CASE("A readback that is moved from refuses every call", "[runtime][readback]") {
  Readback readback = open_context().tensor(bytes_desc(8)).download();
  Readback moved = std::move(readback);
  CHECK(moved.wait(in_a_minute()));
  const auto check_refused = [](const Error& error) {
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == "The readback is moved from.");
  };
  // NOLINTBEGIN: uses after the move are what is tested.
  check_refused(refusal([&] { static_cast<void>(readback.size()); }));
  check_refused(refusal([&] { static_cast<void>(readback.desc(0)); }));
  check_refused(refusal([&] { static_cast<void>(readback.wait(past())); }));
  check_refused(refusal([&] { static_cast<void>(readback.bytes(0)); }));
  check_refused(refusal([&] { static_cast<void>(readback.take()); }));
  check_refused(refusal([&] { static_cast<void>(readback.read_into({}, past())); }));
  // NOLINTEND
}

TEST_CASE("A readback of device memory keeps its bytes whatever the tensor becomes", "[runtime][readback][R29]") {
  const Context context = open_context();
  const std::vector<std::uint8_t> source = fresh_bytes(64, 1);
  std::optional<DeviceTensor> tensor = upload(context, source);
  Readback readback = tensor->download();
  static_cast<void>(context.tensor(bytes_desc(64)).copy_into(*tensor));
  CHECK(values(*tensor) == std::vector<std::uint8_t>(64, 0));
  tensor.reset();
  REQUIRE(readback.wait(in_a_minute()));
  CHECK(readback.take().front() == bytes_of(source));
}

TEST_CASE("A readback of shared memory copies nothing and refuses writers while it lives", "[runtime][readback][R29]") {
  const Context context = open_context();
  const std::vector<std::uint8_t> source = fresh_bytes(64, 1);
  const Buffer buffer = context.allocate(64, {.label = "s", .placement = Placement::shared});
  const DeviceTensor tensor = buffer.tensor(bytes_desc(64));
  const DeviceTensor other = upload(context, source);
  static_cast<void>(other.copy_into(tensor));
  REQUIRE(buffer.map_read(in_a_minute()).has_value());
  const std::uint64_t staging = context.memory().staging.live_bytes;
  {
    Readback readback = tensor.download();
    CHECK(context.memory().staging.live_bytes == staging);
    CHECK(refusal([&] { static_cast<void>(other.copy_into(tensor)); }).code() == ErrorCode::busy);
    CHECK(!buffer.try_map_write().has_value());
    REQUIRE(readback.wait(in_a_minute()));
    const std::optional<ReadGuard> guard = buffer.try_map_read();
    REQUIRE(guard.has_value());
    CHECK(readback.bytes(0).data() == guard->bytes().data());
    CHECK(std::ranges::equal(readback.bytes(0), bytes_of(source)));
  }
  CHECK_NOTHROW(other.copy_into(tensor));
}

TEST_CASE("A readback waits for what writes its tensor and is busy until then",
          "[runtime][readback][R15][R29][host-only]") {
  HeldContext held;
  const std::vector<std::uint8_t> source = fresh_bytes(64, 1);
  const DeviceTensor from = upload(held.context, source);
  REQUIRE(from.wait(in_a_minute()));
  for (const Placement placement : {Placement::device, Placement::shared}) {
    INFO(to_string(placement));
    const DeviceTensor tensor = held.context.tensor(bytes_desc(64), {.label = "t", .placement = placement});
    REQUIRE(tensor.wait(in_a_minute()));
    held.device->hold();
    static_cast<void>(from.copy_into(tensor));
    Readback readback = tensor.download();
    CHECK(!readback.wait(past()));
    CHECK(refusal([&] { static_cast<void>(readback.bytes(0)); }).code() == ErrorCode::busy);
    CHECK(refusal([&] { static_cast<void>(readback.take()); }).code() == ErrorCode::busy);
    std::vector<std::byte> short_one(63);
    const std::array<std::span<std::byte>, 1> wrong{short_one};
    // Told at once, not when the bytes are there.
    CHECK(refusal([&] { static_cast<void>(readback.read_into(wrong, Deadline::max())); }).code() == ErrorCode::invalid);
    std::vector<std::byte> into(64, std::byte{9});
    const std::array<std::span<std::byte>, 1> right{into};
    CHECK(!readback.read_into(right, past()));
    CHECK(into == std::vector<std::byte>(64, std::byte{9}));
    held.device->release();
    REQUIRE(readback.read_into(right, in_a_minute()));
    CHECK(into == bytes_of(source));
  }
}

}  // namespace weft::test
