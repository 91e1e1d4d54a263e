#include "catch.h"
#include "device/seam.h"
#include "support/test_kernels.h"

namespace weft::test {

namespace {

constexpr std::uint64_t kFiveMilliseconds = 5'000'000;

UniqueExecutable slow_copy_once(Seam& seam, DeviceAddress from, DeviceAddress to, std::uint64_t nanoseconds) {
  const SeamKernel kernel = seam.kernel(slow_copy_spec());
  const UniqueGraph graph = seam.graph();
  seam.add(graph, kernel.node({1}, from, to, std::uint64_t{8}, nanoseconds));
  return seam.instantiate(graph);
}

}  // namespace

TEST_CASE("Work of a stream runs in its order", "[device]") {
  Seam seam(open_test_device());
  const DeviceAddress from = seam.memory_of(std::vector<std::uint32_t>(8, 1));
  const DeviceAddress to = seam.memory_of(std::vector<std::uint32_t>(8, 2));
  const UniqueExecutable copy = slow_copy_once(seam, from, to, kFiveMilliseconds);
  REQUIRE(seam->launch(copy.get(), seam.stream()).ok());
  REQUIRE(seam->fill(seam.stream(), {to, 16, 0}).ok());
  CHECK(seam.values<std::uint32_t>(to, 8) == std::vector<std::uint32_t>{0, 0, 0, 0, 1, 1, 1, 1});
  CHECK(seam->query_stream(seam.stream()).ok());
}

TEST_CASE("An event orders the work of two streams", "[device]") {
  Seam seam(open_test_device());
  const DeviceAddress a = seam.memory_of(std::vector<std::uint32_t>(8, 11));
  const DeviceAddress b = seam.memory_of(std::vector<std::uint32_t>(8, 22));
  const DeviceAddress c = seam.memory_of(std::vector<std::uint32_t>(8, 33));
  const UniqueExecutable copy = slow_copy_once(seam, a, b, kFiveMilliseconds);
  const UniqueStream other = seam.another_stream();
  EventHandle event{};
  REQUIRE(seam->create_event(event).ok());
  REQUIRE(seam->launch(copy.get(), seam.stream()).ok());
  REQUIRE(seam->record_event(event, seam.stream()).ok());
  REQUIRE(seam->wait_event(other.get(), event).ok());
  REQUIRE(seam->copy(other.get(), {c, b, 32}).ok());
  REQUIRE(seam->synchronize_stream(other.get()).ok());
  CHECK(seam->query_stream(seam.stream()).ok());
  CHECK(seam.values<std::uint32_t>(c, 8) == std::vector<std::uint32_t>(8, 11));
  REQUIRE(seam->destroy_event(event).ok());
}

TEST_CASE("Synchronizing an event waits for what was recorded", "[device]") {
  Seam seam(open_test_device());
  const DeviceAddress from = seam.memory_of(std::vector<std::uint32_t>(8, 5));
  const PinnedMemory to = seam.pinned(32);
  const UniqueExecutable copy = slow_copy_once(seam, from, to.device, kFiveMilliseconds);
  EventHandle event{};
  REQUIRE(seam->create_event(event).ok());
  REQUIRE(seam->launch(copy.get(), seam.stream()).ok());
  REQUIRE(seam->record_event(event, seam.stream()).ok());
  REQUIRE(seam->synchronize_event(event).ok());
  CHECK(to.host[0] == std::byte{5});
  REQUIRE(seam->destroy_event(event).ok());
}

TEST_CASE("An event that was never recorded is refused where it is waited for", "[device]") {
  Seam seam(open_test_device());
  EventHandle event{};
  REQUIRE(seam->create_event(event).ok());
  CHECK(seam->wait_event(seam.stream(), event).code == StatusCode::invalid);
  CHECK(seam->synchronize_event(event).code == StatusCode::invalid);
  REQUIRE(seam->record_event(event, seam.stream()).ok());
  CHECK(seam->wait_event(seam.stream(), event).ok());
  CHECK(seam->synchronize_event(event).ok());
  REQUIRE(seam->destroy_event(event).ok());
}

TEST_CASE("A stream with work queued may be destroyed and its work finishes", "[device]") {
  Seam seam(open_test_device());
  const DeviceAddress from = seam.memory_of(std::vector<std::uint32_t>(8, 5));
  const DeviceAddress to = seam.memory_of(std::vector<std::uint32_t>(8, 0));
  const UniqueExecutable copy = slow_copy_once(seam, from, to, kFiveMilliseconds);
  EventHandle event{};
  REQUIRE(seam->create_event(event).ok());
  {
    const UniqueStream passing = seam.another_stream();
    REQUIRE(seam->launch(copy.get(), passing.get()).ok());
    REQUIRE(seam->record_event(event, passing.get()).ok());
  }
  REQUIRE(seam->synchronize_event(event).ok());
  CHECK(seam.values<std::uint32_t>(to, 8) == std::vector<std::uint32_t>(8, 5));
  REQUIRE(seam->destroy_event(event).ok());
}

// The host device has one worker: there a slow kernel delays all streams.
TEST_CASE("A stream does not wait for another on the GPU", "[device][cuda-only]") {
  Seam seam(open_test_device());
  const DeviceAddress from = seam.memory_of(std::vector<std::uint32_t>(8, 5));
  const DeviceAddress to = seam.memory(32);
  const DeviceAddress unrelated = seam.memory(1);
  const UniqueExecutable copy = slow_copy_once(seam, from, to, 100 * kFiveMilliseconds);
  const UniqueStream other = seam.another_stream();
  REQUIRE(seam->launch(copy.get(), seam.stream()).ok());
  REQUIRE(seam->fill(other.get(), {unrelated, 1, 5}).ok());
  REQUIRE(seam->synchronize_stream(other.get()).ok());
  CHECK(seam->query_stream(seam.stream()).code == StatusCode::not_ready);
}

}  // namespace weft::test
