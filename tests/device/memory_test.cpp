#include "catch.h"
#include "device/seam.h"
#include "support/test_kernels.h"

#include <algorithm>
#include <numeric>

namespace weft::test {

namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes counting_bytes(std::size_t count) {
  Bytes bytes(count);
  std::iota(bytes.begin(), bytes.end(), std::uint8_t{1});
  return bytes;
}

}  // namespace

TEST_CASE("A fill writes its bytes and no other", "[device]") {
  Seam seam(open_test_device());
  const DeviceAddress memory = seam.memory_of(Bytes(1000, 7));
  REQUIRE(seam->fill(seam.stream(), {memory + 13, 501, 0xc3}).ok());
  Bytes expected(1000, 7);
  std::fill_n(expected.begin() + 13, 501, std::uint8_t{0xc3});
  CHECK(seam.values<std::uint8_t>(memory, 1000) == expected);
}

TEST_CASE("A copy writes its bytes and no other", "[device]") {
  Seam seam(open_test_device());
  const Bytes source = counting_bytes(300);
  const DeviceAddress from = seam.memory_of(source);
  const DeviceAddress to = seam.memory_of(Bytes(300, 0xee));
  REQUIRE(seam->copy(seam.stream(), {to + 3, from + 10, 77}).ok());
  Bytes expected(300, 0xee);
  std::copy_n(source.begin() + 10, 77, expected.begin() + 3);
  CHECK(seam.values<std::uint8_t>(to, 300) == expected);
}

TEST_CASE("A fill or copy that leaves its allocation is refused", "[device]") {
  Seam seam(open_test_device());
  const DeviceAddress memory = seam.memory(4096);
  const DeviceAddress other = seam.memory(std::uint64_t{8} << 20);
  CHECK(seam.try_add(FillNode{memory, 4097, 0}).code == StatusCode::invalid);
  CHECK(seam.try_add(FillNode{memory + 1, 4096, 0}).code == StatusCode::invalid);
  CHECK(seam.try_add(FillNode{0, 1, 0}).code == StatusCode::invalid);
  CHECK(seam.try_add(CopyNode{other, memory + 1, 4096}).code == StatusCode::invalid);
  CHECK(seam.try_add(CopyNode{memory + 1, other, 4096}).code == StatusCode::invalid);
  CHECK(seam.try_add(FillNode{memory, 4096, 0}).ok());
  CHECK(seam.try_add(CopyNode{other, memory, 4096}).ok());
}

TEST_CASE("A fill or copy node of zero bytes is refused", "[device]") {
  Seam seam(open_test_device());
  const DeviceAddress memory = seam.memory(64);
  CHECK(seam.try_add(FillNode{memory, 0, 0}).code == StatusCode::invalid);
  CHECK(seam.try_add(CopyNode{memory + 32, memory, 0}).code == StatusCode::invalid);
}

TEST_CASE("Device memory is aligned and described by any of its addresses", "[device]") {
  Seam seam(open_test_device());
  const DeviceAddress memory = seam.memory(1000);
  CHECK(memory % 256 == 0);
  AddressInfo info;
  REQUIRE(seam->describe_address(memory + 999, info).ok());
  CHECK(info.kind == AddressInfo::Kind::device);
  CHECK(info.base == memory);
  CHECK(info.bytes >= 1000);

  const Bytes pageable(16);
  REQUIRE(seam->describe_address(reinterpret_cast<DeviceAddress>(pageable.data()), info).ok());
  CHECK(info.kind == AddressInfo::Kind::unknown);
}

TEST_CASE("Pinned memory is zeroed and the device and the host see the same bytes", "[device]") {
  Seam seam(open_test_device());
  const PinnedMemory pinned = seam.pinned(5000);
  CHECK(reinterpret_cast<DeviceAddress>(pinned.host) % 4096 == 0);
  CHECK(std::all_of(pinned.host, pinned.host + 5000, [](std::byte byte) { return byte == std::byte{0}; }));
  AddressInfo info;
  REQUIRE(seam->describe_address(pinned.device, info).ok());
  CHECK(info.kind == AddressInfo::Kind::pinned);

  pinned.host[4999] = std::byte{9};
  const DeviceAddress memory = seam.memory(1);
  REQUIRE(seam->copy(seam.stream(), {memory, pinned.device + 4999, 1}).ok());
  REQUIRE(seam->copy(seam.stream(), {pinned.device, memory, 1}).ok());
  seam.synchronize();
  CHECK(pinned.host[0] == std::byte{9});
}

TEST_CASE("Memory is given back after the work that is queued before its free", "[device]") {
  Seam seam(open_test_device());
  const SeamKernel slow_copy_kernel = seam.kernel(slow_copy_spec());
  const std::vector<std::uint32_t> words(64, 0x12345678);
  const DeviceAddress result = seam.memory(256);
  DeviceAddress passing = 0;
  REQUIRE(seam->allocate(seam.stream(), 256, passing).ok());
  REQUIRE(seam->copy(seam.stream(), {passing, reinterpret_cast<DeviceAddress>(words.data()), 256}).ok());
  const UniqueGraph graph = seam.graph();
  seam.add(graph, slow_copy_kernel.node({1}, passing, result, std::uint64_t{64}, std::uint64_t{5'000'000}));
  const UniqueExecutable executable = seam.instantiate(graph);
  REQUIRE(seam->launch(executable.get(), seam.stream()).ok());
  REQUIRE(seam->free(seam.stream(), passing).ok());
  CHECK(seam.values<std::uint32_t>(result, 64) == words);
  CHECK(seam->health().ok());
}

TEST_CASE("Memory info follows allocation and trim", "[device]") {
  Seam seam(open_test_device());
  MemoryInfo before;
  MemoryInfo during;
  MemoryInfo after;
  REQUIRE(seam->memory_info(before).ok());
  DeviceAddress memory = 0;
  REQUIRE(seam->allocate(seam.stream(), std::uint64_t{64} << 20, memory).ok());
  REQUIRE(seam->memory_info(during).ok());
  CHECK(during.pool_used_bytes >= before.pool_used_bytes + (std::uint64_t{64} << 20));
  CHECK(during.pool_reserved_bytes >= during.pool_used_bytes);
  CHECK(during.total_bytes >= during.free_bytes);
  REQUIRE(seam->free(seam.stream(), memory).ok());
  seam.synchronize();
  REQUIRE(seam->trim(0).ok());
  REQUIRE(seam->memory_info(after).ok());
  CHECK(after.pool_used_bytes == before.pool_used_bytes);
  CHECK(after.pool_reserved_bytes < during.pool_reserved_bytes);
}

TEST_CASE("An allocation beyond the device answers out of memory and does no harm", "[device]") {
  Seam seam(open_test_device());
  DeviceAddress memory = 42;
  CHECK(seam->allocate(seam.stream(), std::uint64_t{1} << 50, memory).code == StatusCode::out_of_memory);
  CHECK(memory == 42);
  CHECK(seam->health().ok());
  CHECK(seam.memory(64) != 0);
}

}  // namespace weft::test
