#include "catch.h"
#include "cuda/device_bytes.h"
#include "cuda/gpu.h"

namespace weft::test {
namespace {

constexpr std::uint64_t kFilled = (std::uint64_t{5} << 30) + 3;
constexpr std::uint64_t kBefore = 1;
constexpr std::uint64_t kAfter = 4096;
constexpr std::uint64_t kAllocated = kBefore + kFilled + kAfter;
constexpr std::uint64_t kSeed = 20240517;
constexpr std::uint8_t kValue = 0xA5;  // No byte of the pattern has it.

/// Fills the middle of a patterned allocation with `node` and counts the bytes that are wrong.
void fill_and_verify(const Gpu& gpu, DeviceAddress memory, const Node& node) {
  write_pattern(memory, kAllocated, kSeed);
  REQUIRE(pattern_mismatches(memory, 0, kAllocated, kSeed) == 0);

  GraphHandle graph{};
  NodeHandle handle{};
  must(gpu.api->create_graph(graph));
  must(gpu.api->add_node(graph, node, {}, handle));
  gpu.run(graph);
  must(gpu.api->destroy_graph(graph));

  CHECK(value_mismatches(memory + kBefore, kFilled, kValue) == 0);
  CHECK(pattern_mismatches(memory, 0, kBefore, kSeed) == 0);
  CHECK(pattern_mismatches(memory, kBefore + kFilled, kAfter, kSeed) == 0);
}

TEST_CASE("A fill of 5 GiB and 3 bytes at an odd address sets each of its bytes and no other",
          "[cuda][cuda-only][big]") {
  const Gpu gpu;
  const DeviceAddress memory = gpu.allocate(kAllocated);

  SECTION("as a memset node") { fill_and_verify(gpu, memory, FillNode{memory + kBefore, kFilled, kValue}); }
  SECTION("by the fill kernel") {
    const Gpu::Kernel fill = gpu.kernel(own::fill_spec());
    fill_and_verify(gpu, memory, launch_of(fill, own::copy_grid(kFilled), memory + kBefore, kFilled, kValue));
  }

  must(gpu.api->free(gpu.stream, memory));
  must(gpu.api->synchronize_stream(gpu.stream));
  must(gpu.api->trim(0));
}

TEST_CASE("A fill of 2 GiB and a byte at an odd offset can be set to another place", "[cuda][cuda-only][big][case19]") {
  constexpr std::uint64_t kSize = (std::uint64_t{2} << 30) + 1;
  constexpr std::uint64_t kTotal = kSize + 8192;
  constexpr std::uint64_t kMove = 4096;
  const Gpu gpu;
  const DeviceAddress memory = gpu.allocate(kTotal);
  const std::uint64_t offset = GENERATE(std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{3});
  const std::uint8_t value = GENERATE(std::uint8_t{0x00}, std::uint8_t{0xa5}, std::uint8_t{0xff});
  INFO("offset " << offset << " value " << int{value});
  GraphHandle graph{};
  NodeHandle node{};
  ExecutableHandle executable{};
  must(gpu.api->create_graph(graph));
  must(gpu.api->add_node(graph, FillNode{memory + offset, kSize, value}, {}, node));
  must(gpu.api->instantiate(graph, executable));
  const auto run_and_verify = [&](std::uint64_t at) {
    write_pattern(memory, kTotal, kSeed);
    must(gpu.api->launch(executable, gpu.stream));
    must(gpu.api->synchronize_stream(gpu.stream));
    CHECK(value_mismatches(memory + at, kSize, value) == 0);
    CHECK(pattern_mismatches(memory, 0, at, kSeed) == 0);
    CHECK(pattern_mismatches(memory, at + kSize, kTotal - at - kSize, kSeed) == 0);
  };
  run_and_verify(offset);
  must(gpu.api->set_executable_node(executable, node, FillNode{memory + kMove + offset, kSize, value}));
  run_and_verify(kMove + offset);

  must(gpu.api->destroy_executable(executable));
  must(gpu.api->destroy_graph(graph));
  must(gpu.api->free(gpu.stream, memory));
  must(gpu.api->synchronize_stream(gpu.stream));
  must(gpu.api->trim(0));
}

}  // namespace
}  // namespace weft::test
