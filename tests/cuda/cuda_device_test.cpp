#include "catch.h"
#include "cuda/gpu.h"

#include <algorithm>
#include <array>

// The device itself, memory, streams and events of the CUDA side, through the seam.

namespace weft::test {
namespace {

bool all_are(std::span<const std::byte> bytes, std::uint8_t value) {
  return std::ranges::all_of(bytes, [&](std::byte byte) { return byte == std::byte{value}; });
}

TEST_CASE("A GPU tells its limits", "[cuda][cuda-only]") {
  const Gpu gpu;
  const DeviceLimits& limits = gpu.api->limits();
  CHECK(!limits.name.empty());
  CHECK(limits.compute_capability >= 80);
  CHECK(limits.driver_version >= 12080);
  CHECK(limits.multiprocessors > 0);
  CHECK(limits.max_threads_per_block == 1024);
  CHECK(limits.max_block == Dim3{1024, 1024, 64});
  CHECK(limits.max_grid == Dim3{2147483647, 65535, 65535});
  CHECK(limits.default_shared_bytes == 49152);
  CHECK(limits.max_shared_bytes > limits.default_shared_bytes);
  CHECK(limits.total_memory_bytes > (std::uint64_t{1} << 30));
  CHECK(limits.fill_nodes_on_pool_memory);
  CHECK(gpu.api->health().ok());
}

TEST_CASE("Memory is filled and copied as asked", "[cuda][cuda-only]") {
  const Gpu gpu;
  const DeviceAddress memory = gpu.allocate(1000);
  CHECK(memory % 256 == 0);
  must(gpu.api->fill(gpu.stream, {memory, 1000, 0x11}));
  must(gpu.api->fill(gpu.stream, {memory + 333, 334, 0x7F}));
  const std::vector<std::byte> bytes = gpu.read(memory, 1000);
  CHECK(all_are(std::span(bytes).first(333), 0x11));
  CHECK(all_are(std::span(bytes).subspan(333, 334), 0x7F));
  CHECK(all_are(std::span(bytes).last(333), 0x11));
  must(gpu.api->free(gpu.stream, memory));
}

TEST_CASE("An allocation of no bytes is refused", "[cuda][cuda-only]") {
  const Gpu gpu;
  DeviceAddress address = 1;
  PinnedMemory pinned;
  CHECK(gpu.api->allocate(gpu.stream, 0, address).code == StatusCode::invalid);
  CHECK(gpu.api->allocate_pinned(0, pinned).code == StatusCode::invalid);
  CHECK(address == 1);
  CHECK(pinned.host == nullptr);
}

TEST_CASE("More memory than there is answers out of memory and harms nothing", "[cuda][cuda-only]") {
  const Gpu gpu;
  DeviceAddress address = 1;
  CHECK(gpu.api->allocate(gpu.stream, gpu.api->limits().total_memory_bytes * 2, address).code ==
        StatusCode::out_of_memory);
  CHECK(address == 1);
  CHECK(gpu.api->health().ok());
  must(gpu.api->free(gpu.stream, gpu.allocate(64)));
}

TEST_CASE("The pool's use is told and its idle memory is kept until it is trimmed", "[cuda][cuda-only]") {
  constexpr std::uint64_t kBytes = std::uint64_t{256} << 20;
  const Gpu gpu;
  MemoryInfo before;
  MemoryInfo during;
  MemoryInfo idle;
  MemoryInfo trimmed;
  must(gpu.api->memory_info(before));
  const DeviceAddress memory = gpu.allocate(kBytes);
  must(gpu.api->memory_info(during));
  must(gpu.api->free(gpu.stream, memory));
  must(gpu.api->synchronize_stream(gpu.stream));
  must(gpu.api->memory_info(idle));
  must(gpu.api->trim(0));
  must(gpu.api->memory_info(trimmed));

  CHECK(during.pool_used_bytes >= before.pool_used_bytes + kBytes);
  CHECK(during.pool_reserved_bytes >= during.pool_used_bytes);
  CHECK(idle.pool_used_bytes == before.pool_used_bytes);
  CHECK(idle.pool_reserved_bytes >= kBytes);
  CHECK(trimmed.pool_reserved_bytes < kBytes);
  CHECK(trimmed.free_bytes <= trimmed.total_bytes);
}

TEST_CASE("Pinned memory is zeroed and aligned and the device uses it at its address", "[cuda][cuda-only]") {
  const Gpu gpu;
  PinnedMemory pinned;
  must(gpu.api->allocate_pinned(4096 + 128, pinned));
  CHECK(all_are({pinned.host, 4096 + 128}, 0));
  CHECK(pinned.device % 256 == 0);
  CHECK(reinterpret_cast<DeviceAddress>(pinned.host) == pinned.device);
  must(gpu.api->fill(gpu.stream, {pinned.device + 1, 100, 0x42}));
  must(gpu.api->synchronize_stream(gpu.stream));
  CHECK(pinned.host[0] == std::byte{0});
  CHECK(all_are({pinned.host + 1, 100}, 0x42));
  CHECK(pinned.host[101] == std::byte{0});
  must(gpu.api->free_pinned(pinned.host));
}

TEST_CASE("An address is described by its kind and allocation", "[cuda][cuda-only]") {
  const Gpu gpu;
  const DeviceAddress memory = gpu.allocate(1000);
  PinnedMemory pinned;
  must(gpu.api->allocate_pinned(1000, pinned));
  int pageable = 0;

  AddressInfo info;
  must(gpu.api->describe_address(memory + 999, info));
  CHECK(info.kind == AddressInfo::Kind::device);
  CHECK(info.base == memory);
  CHECK(info.bytes >= 1000);

  must(gpu.api->describe_address(pinned.device + 999, info));
  CHECK(info.kind == AddressInfo::Kind::pinned);
  CHECK(info.base == pinned.device);
  CHECK(info.bytes >= 1000);

  must(gpu.api->describe_address(reinterpret_cast<DeviceAddress>(&pageable), info));
  CHECK(info.kind == AddressInfo::Kind::unknown);

  must(gpu.api->free(gpu.stream, memory));
  must(gpu.api->free_pinned(pinned.host));
}

TEST_CASE("Work of another stream follows an event and an event never recorded is refused", "[cuda][cuda-only]") {
  constexpr std::uint64_t kBytes = std::uint64_t{64} << 20;
  const Gpu gpu;
  StreamHandle other{};
  EventHandle event{};
  must(gpu.api->create_stream(other));
  must(gpu.api->create_event(event));
  CHECK(gpu.api->wait_event(other, event).code == StatusCode::invalid);

  const DeviceAddress memory = gpu.allocate(kBytes);
  for (std::uint8_t round = 1; round <= 8; ++round) {
    for (int i = 0; i < 16; ++i) must(gpu.api->fill(gpu.stream, {memory, kBytes, 0}));
    must(gpu.api->fill(gpu.stream, {memory, kBytes, round}));
    must(gpu.api->record_event(event, gpu.stream));
    must(gpu.api->wait_event(other, event));
    std::array<std::byte, 1> last{};
    must(gpu.api->copy(other, {reinterpret_cast<DeviceAddress>(last.data()), memory + kBytes - 1, 1}));
    must(gpu.api->synchronize_stream(other));
    CHECK(last[0] == std::byte{round});
  }
  must(gpu.api->synchronize_event(event));
  CHECK(gpu.api->query_stream(gpu.stream).ok());
  must(gpu.api->free(gpu.stream, memory));
  must(gpu.api->destroy_event(event));
  must(gpu.api->destroy_stream(other));
}

TEST_CASE("A stream with work queued is not ready", "[cuda][cuda-only]") {
  constexpr std::uint64_t kBytes = std::uint64_t{1} << 30;
  const Gpu gpu;
  const DeviceAddress memory = gpu.allocate(kBytes);
  for (int i = 0; i < 64; ++i) must(gpu.api->fill(gpu.stream, {memory, kBytes, 1}));  // More than 10 ms of work.
  CHECK(gpu.api->query_stream(gpu.stream).code == StatusCode::not_ready);
  CHECK(gpu.api->health().ok());
  must(gpu.api->synchronize_stream(gpu.stream));
  CHECK(gpu.api->query_stream(gpu.stream).ok());
  must(gpu.api->free(gpu.stream, memory));
}

}  // namespace
}  // namespace weft::test
