#include "catch.h"
#include "device/faults.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/device.h"
#include <weft/error.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

const AllocationOptions kShared{.label = "s", .placement = Placement::shared};

std::vector<std::uint8_t> copy_of(std::span<const std::byte> bytes) {
  std::vector<std::uint8_t> copy(bytes.size());
  std::ranges::transform(bytes, copy.begin(), [](std::byte byte) { return std::to_integer<std::uint8_t>(byte); });
  return copy;
}

}  // namespace

TEST_CASE("A buffer of no bytes or of 2^63 is refused and counts nothing", "[runtime][buffer][R1]") {
  const Context context = open_context();
  const MemoryStatistics before = context.memory();
  for (const Placement placement : {Placement::device, Placement::shared}) {
    for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{1} << 63}) {
      const Error error =
          refusal([&] { static_cast<void>(context.allocate(bytes, {.label = "b", .placement = placement})); });
      CHECK(error.code() == ErrorCode::invalid);
      CHECK(contains(error.sentence(), "The buffer \"b\" has "));
      CHECK(contains(error.sentence(), "a buffer has 1 to 9223372036854775807."));
    }
  }
  CHECK(context.memory() == before);
}

TEST_CASE("Live buffers of both kinds are zeroed and counted to the byte and leave nothing",
          "[runtime][buffer][R1][T19][B1][B3]") {
  constexpr std::uint64_t kBuffers = 512;
  const auto device = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  const Context context = open_context();
  REQUIRE(context.tensor(bytes_desc(1)).wait(in_a_minute()));
  MemoryInfo empty;
  check(device->memory_info(empty), "tell its memory");
  const std::uint64_t allocations = context.memory().requested.allocations;
  std::uint64_t shared_bytes = 0;
  std::uint64_t device_bytes = 0;
  {
    std::vector<Buffer> buffers;
    for (std::uint64_t i = 0; i < kBuffers; ++i) {
      const std::uint64_t bytes = 1 + i * 7 % 301;
      const bool shared = i % 2 == 1;
      (shared ? shared_bytes : device_bytes) += bytes;
      buffers.push_back(
          context.allocate(bytes, {.label = "b", .placement = shared ? Placement::shared : Placement::device}));
      CHECK(buffers.back().bytes() == bytes);
      CHECK(buffers.back().placement() == (shared ? Placement::shared : Placement::device));
    }
    const MemoryStatistics now = context.memory();
    CHECK(now.requested.live_bytes == shared_bytes + device_bytes);
    CHECK(now.requested.allocations == allocations + kBuffers);
    CHECK(now.reserved.live_bytes >= device_bytes);
    CHECK(now.staging.live_bytes >= shared_bytes);
    // Native queues do not grow with the number of buffers.
    CHECK(device->count(Verb::create_stream) <= 8);
    CHECK(device->count(Verb::create_event) <= 8);
    CHECK(device->count(Verb::instantiate) <= 8);

    for (const Buffer& buffer : buffers) CHECK(values(buffer) == std::vector<std::uint8_t>(buffer.bytes(), 0));
    const std::vector<std::uint8_t> fresh = fresh_bytes(100, 1);
    CHECK(values(upload(context, fresh)) == fresh);
  }
  CHECK(eventually([&] { return context.memory().requested.live_bytes == 0; }));
  CHECK(context.memory().requested.peak_bytes >= shared_bytes + device_bytes);
  // What is left are the few bytes in which copies count.
  CHECK(context.memory().reserved.live_bytes <= 8 * 256);
  CHECK(eventually([&] {
    MemoryInfo info;
    check(device->memory_info(info), "tell its memory");
    return info.pool_used_bytes <= empty.pool_used_bytes + 8 * 512;
  }));
}

TEST_CASE("A refused device allocation counts nothing and the next is served", "[runtime][buffer][R1]") {
  for (const auto& [verb, placement] :
       {std::pair(Verb::allocate, Placement::device), std::pair(Verb::allocate_pinned, Placement::shared)}) {
    INFO(to_string(placement));
    // Number 0 of the device's verb is the counter, number 0 of the other the word, of the copies that come first.
    const auto device = std::make_shared<FailingDevice>(open_device(test_device()), verb, 2, StatusCode::out_of_memory);
    const ScopedDevice scoped(test_device(), device);
    const Context context = open_context();
    const DeviceTensor first = context.tensor(bytes_desc(1));
    REQUIRE(first.wait(in_a_minute()));
    if (placement == Placement::shared) static_cast<void>(context.allocate(10, kShared));
    REQUIRE(!device->has_failed());
    const std::vector<std::uint64_t> before = live(context);
    const std::uint64_t allocations = context.memory().requested.allocations;
    const Error error =
        refusal([&] { static_cast<void>(context.allocate(1000, {.label = "b", .placement = placement})); });
    CHECK(error.code() == ErrorCode::out_of_memory);
    CHECK(contains(error.what(), "for the buffer \"b\""));
    CHECK(live(context) == before);
    CHECK(context.memory().requested.allocations == allocations);
    CHECK(values(context.allocate(1000, {.label = "b", .placement = placement})) == std::vector<std::uint8_t>(1000, 0));
  }
}

TEST_CASE("Slices and tensors keep the memory that they share", "[runtime][buffer][R1][R5]") {
  const Context context = open_context();
  std::optional<Buffer> buffer = context.allocate(64, kShared);
  std::optional<Buffer> slice = buffer->slice(16, 32);
  CHECK(slice->bytes() == 32);
  const Buffer inner = slice->slice(4, 8);
  const std::vector<std::uint8_t> fresh = fresh_bytes(64, 3);
  {
    std::optional<WriteGuard> guard = buffer->map_write(in_a_minute());
    REQUIRE(guard.has_value());
    REQUIRE(guard->bytes().size() == 64);
    std::ranges::transform(fresh, guard->bytes().begin(), [](std::uint8_t value) { return std::byte{value}; });
  }
  buffer.reset();
  slice.reset();
  CHECK(context.memory().requested.live_bytes == 64);
  const std::optional<ReadGuard> guard = inner.map_read(in_a_minute());
  REQUIRE(guard.has_value());
  CHECK(copy_of(guard->bytes()) == std::vector<std::uint8_t>(fresh.begin() + 20, fresh.begin() + 28));
  CHECK(values(inner) == std::vector<std::uint8_t>(fresh.begin() + 20, fresh.begin() + 28));
}

TEST_CASE("A slice that leaves its buffer is refused", "[runtime][buffer][R5]") {
  const Buffer buffer = open_context().allocate(64, {.label = "b"});
  const Buffer part = buffer.slice(8, 16);
  CHECK(buffer.slice(64, 0).bytes() == 0);
  for (const auto& [from, size] : {std::pair<std::uint64_t, std::uint64_t>(0, 17),
                                   {17, 0},
                                   {16, 1},
                                   {1, std::numeric_limits<std::uint64_t>::max()},
                                   {std::numeric_limits<std::uint64_t>::max(), 2}}) {
    const Error error = refusal([&, at = from, count = size] { static_cast<void>(part.slice(at, count)); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(contains(error.sentence(), "leaves its part of 16 bytes of the buffer \"b\"."));
  }
}

TEST_CASE("A tensor over a buffer fits and starts at a multiple of its element size", "[runtime][buffer][R7][R36]") {
  const Buffer buffer = open_context().allocate(64, {.label = "b"});
  const TensorDesc four(DType::f32, {4});
  CHECK(buffer.tensor(four, 48).desc() == four);
  CHECK(refusal([&] { static_cast<void>(buffer.tensor(four, 52)); }).code() == ErrorCode::invalid);
  const Error error = refusal([&] { static_cast<void>(buffer.tensor(four, 2)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() ==
        "The tensor f32[4] would start at byte 2 of its memory; it starts at multiples of its element size, 4.");
  // What counts is where it starts in the allocation.
  CHECK_NOTHROW(buffer.slice(2, 40).tensor(four, 2));
  CHECK(refusal([&] { static_cast<void>(buffer.slice(2, 40).tensor(four, 4)); }).code() == ErrorCode::invalid);
}

TEST_CASE("Device memory is not mapped", "[runtime][buffer][R2]") {
  const Buffer buffer = open_context().allocate(64, {.label = "b"});
  const auto check_unsupported = [](const Error& error) {
    CHECK(error.code() == ErrorCode::unsupported);
    CHECK(error.sentence() ==
          "The buffer \"b\" is device memory, which the host cannot map; shared memory can be mapped.");
  };
  check_unsupported(refusal([&] { static_cast<void>(buffer.map_read(in_a_minute())); }));
  check_unsupported(refusal([&] { static_cast<void>(buffer.map_write(in_a_minute())); }));
  check_unsupported(refusal([&] { static_cast<void>(buffer.try_map_read()); }));
  check_unsupported(refusal([&] { static_cast<void>(buffer.try_map_write()); }));
}

TEST_CASE("Many readers or one writer map all of an allocation", "[runtime][buffer][R2][R3][T31]") {
  const Buffer buffer = open_context().allocate(64, kShared);
  const Buffer alias = buffer.slice(32, 32);
  {
    const std::optional<ReadGuard> first = buffer.map_read(in_a_minute());
    const std::optional<ReadGuard> second = alias.try_map_read();
    REQUIRE(first.has_value());
    REQUIRE(second.has_value());
    CHECK(!alias.try_map_write().has_value());
    const Error error = refusal([&] { static_cast<void>(alias.map_write(in_a_minute())); });
    CHECK(error.code() == ErrorCode::busy);
    CHECK(error.sentence() == "The buffer \"s\" is mapped already; a writer maps it alone.");
  }
  std::optional<WriteGuard> writer = alias.map_write(in_a_minute());
  REQUIRE(writer.has_value());
  CHECK(!buffer.try_map_read().has_value());
  CHECK(!buffer.try_map_write().has_value());
  const Error error = refusal([&] { static_cast<void>(buffer.map_read(in_a_minute())); });
  CHECK(error.code() == ErrorCode::busy);
  CHECK(error.sentence() == "The buffer \"s\" is mapped already; a reader maps it with other readers alone.");
  CHECK(refusal([&] { static_cast<void>(buffer.map_write(in_a_minute())); }).code() == ErrorCode::busy);
  writer.reset();
  CHECK(buffer.try_map_write().has_value());
}

TEST_CASE("Guards refuse the submissions that conflict with them", "[runtime][buffer][R3][T31]") {
  const Context context = open_context();
  const Buffer buffer = context.allocate(64, kShared);
  const DeviceTensor inside = buffer.tensor(bytes_desc(64));
  const std::vector<std::uint8_t> fresh = fresh_bytes(64, 1);
  const DeviceTensor source = upload(context, fresh);
  const DeviceTensor target = context.tensor(bytes_desc(64));
  {
    const std::optional<ReadGuard> one = buffer.map_read(in_a_minute());
    const std::optional<ReadGuard> two = buffer.map_read(in_a_minute());
    REQUIRE(one.has_value());
    REQUIRE(two.has_value());
    CHECK(inside.copy_into(target).wait(in_a_minute()));  // It only reads.
    const Error error = refusal([&] { static_cast<void>(source.copy_into(inside)); });
    CHECK(error.code() == ErrorCode::busy);
    CHECK(contains(error.sentence(), "The host maps the buffer \"s\" for reading"));
  }
  {
    const std::optional<WriteGuard> writer = buffer.map_write(in_a_minute());
    REQUIRE(writer.has_value());
    const Error error = refusal([&] { static_cast<void>(inside.copy_into(target)); });
    CHECK(error.code() == ErrorCode::busy);
    CHECK(contains(error.sentence(), "The host maps the buffer \"s\" for writing"));
    CHECK(refusal([&] { static_cast<void>(source.copy_into(inside)); }).code() == ErrorCode::busy);
    CHECK(refusal([&] { static_cast<void>(inside.download()); }).code() == ErrorCode::busy);
    CHECK(refusal([&] { static_cast<void>(context.concatenate({inside, source})); }).code() == ErrorCode::busy);
  }
  CHECK(values(target) == std::vector<std::uint8_t>(64, 0));
  static_cast<void>(source.copy_into(inside));
  CHECK(values(inside) == fresh);
}

TEST_CASE("A guard that moves holds what it held and lets go of what it replaces", "[runtime][buffer][R2]") {
  const Context context = open_context();
  const Buffer a = context.allocate(8, {.label = "a", .placement = Placement::shared});
  const Buffer b = context.allocate(8, {.label = "b", .placement = Placement::shared});
  WriteGuard on_a = a.try_map_write().value();
  WriteGuard on_b = b.try_map_write().value();
  on_a = std::move(on_b);
  CHECK(a.try_map_write().has_value());
  CHECK(!b.try_map_write().has_value());
  {
    const WriteGuard moved = std::move(on_a);
    CHECK(moved.bytes().size() == 8);
    CHECK(!b.try_map_write().has_value());
  }
  CHECK(b.try_map_write().has_value());
  ReadGuard reads_a = a.try_map_read().value();
  ReadGuard reads_b = b.try_map_read().value();
  reads_a = std::move(reads_b);
  CHECK(a.try_map_write().has_value());
  CHECK(!b.try_map_write().has_value());
}

TEST_CASE("A guard outlives the handles of its buffer", "[runtime][buffer][R1]") {
  const Context context = open_context();
  std::optional<ReadGuard> guard = context.allocate(8, kShared).map_read(in_a_minute());
  REQUIRE(guard.has_value());
  CHECK(copy_of(guard->bytes()) == std::vector<std::uint8_t>(8, 0));
  CHECK(context.memory().requested.live_bytes == 8);
  guard.reset();
  CHECK(context.memory().requested.live_bytes == 0);
}

TEST_CASE("A map waits for the device work that conflicts and a deadline leaves no lease",
          "[runtime][buffer][R3][R4][host-only]") {
  HeldContext held;
  const Buffer buffer = held.context.allocate(64, kShared);
  const DeviceTensor inside = buffer.tensor(bytes_desc(64));
  const std::vector<std::uint8_t> fresh = fresh_bytes(64, 1);
  const DeviceTensor source = upload(held.context, fresh);
  const DeviceTensor target = held.context.tensor(bytes_desc(64));
  REQUIRE(source.wait(in_a_minute()));
  REQUIRE(target.wait(in_a_minute()));

  held.device->hold();
  static_cast<void>(inside.copy_into(target));
  // A reader does not conflict with it, a writer does.
  CHECK(buffer.try_map_read().has_value());
  CHECK(!buffer.try_map_write().has_value());
  CHECK(!buffer.map_write(past()).has_value());
  static_cast<void>(source.copy_into(inside));
  CHECK(!buffer.try_map_read().has_value());
  CHECK(!buffer.map_read(std::chrono::steady_clock::now() + std::chrono::milliseconds(5)).has_value());
  // The maps that gave up hold nothing: a submission is taken.
  static_cast<void>(source.copy_into(inside));
  held.device->release();
  const std::optional<WriteGuard> guard = buffer.map_write(in_a_minute());
  REQUIRE(guard.has_value());
  CHECK(copy_of(guard->bytes()) == fresh);
}

TEST_CASE("A guard that is moved from holds nothing and shows nothing", "[runtime][buffer][R3]") {
  const Buffer buffer = open_context().allocate(8, kShared);
  std::optional<ReadGuard> reader = buffer.try_map_read();
  {
    const ReadGuard moved = std::move(*reader);
    CHECK(moved.bytes().size() == 8);
    CHECK(reader->bytes().empty());
    CHECK(!buffer.try_map_write().has_value());
  }
  std::optional<WriteGuard> writer = buffer.try_map_write();
  REQUIRE(writer.has_value());
  WriteGuard& self = *writer;
  *writer = std::move(self);
  CHECK(writer->bytes().size() == 8);
  CHECK(!buffer.try_map_read().has_value());
  writer.reset();
  CHECK(buffer.try_map_read().has_value());
}

TEST_CASE("A guard of the host makes a map busy at once", "[runtime][buffer][R3]") {
  const Buffer buffer = open_context().allocate(8, kShared);
  const std::optional<WriteGuard> writer = buffer.try_map_write();
  REQUIRE(writer.has_value());
  const auto begin = std::chrono::steady_clock::now();
  CHECK(refusal([&] { static_cast<void>(buffer.map_read(in_a_minute())); }).code() == ErrorCode::busy);
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(10));
}

}  // namespace weft::test
