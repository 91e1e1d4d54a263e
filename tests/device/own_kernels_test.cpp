#include "device/own_kernels.h"

#include "catch.h"
#include "device/host/host_kernel.h"
#include "device/seam.h"

#include <atomic>
#include <random>
#include <vector>

namespace weft::test {

namespace {

using Bytes = std::vector<std::uint8_t>;

/// One byte less, exactly, and one more than each power of two up to 4096.
std::vector<std::uint64_t> sizes_around_powers_of_two() {
  std::vector<std::uint64_t> sizes{1, 2, 3};
  for (std::uint64_t power = 4; power <= 4096; power *= 2) sizes.insert(sizes.end(), {power - 1, power, power + 1});
  return sizes;
}

Bytes random_bytes(std::size_t count) {
  std::mt19937 random(20240611);
  Bytes bytes(count);
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(random());
  return bytes;
}

std::uint64_t load_word(const PinnedMemory& word) {
  return std::atomic_ref(*reinterpret_cast<std::uint64_t*>(word.host)).load(std::memory_order_acquire);
}

/// Memory of a completion: a counter and a count of arrivals on the device, a word that the host reads.
struct CompletionMemory {
  DeviceAddress counter;
  DeviceAddress arrivals;
  PinnedMemory word;

  explicit CompletionMemory(Seam& seam)
      : counter(seam.memory_of(std::vector<std::uint64_t>{0})),
        arrivals(seam.memory_of(std::vector<std::uint32_t>{0})),
        word(seam.pinned(8)) {}
};

}  // namespace

TEST_CASE("weft_fill writes its bytes and no other at any alignment and size", "[device][own]") {
  Seam seam(open_test_device());
  const SeamKernel fill = seam.kernel(own::fill_spec());
  constexpr std::uint64_t kStride = 4352;
  const std::vector<std::uint64_t> sizes = sizes_around_powers_of_two();
  Bytes expected(sizes.size() * kStride, 0x11);
  const DeviceAddress memory = seam.memory_of(expected);
  const UniqueGraph graph = seam.graph();
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::uint64_t at = i * kStride + i % 17;
    seam.add(graph, fill.node(own::copy_grid(sizes[i]), memory + at, sizes[i], std::uint8_t{0xa7}));
    std::fill_n(expected.begin() + static_cast<std::ptrdiff_t>(at), sizes[i], std::uint8_t{0xa7});
  }
  seam.run(graph);
  CHECK(seam.values<std::uint8_t>(memory, expected.size()) == expected);
}

TEST_CASE("weft_copy writes its bytes and no other at any alignment and size", "[device][own]") {
  Seam seam(open_test_device());
  const SeamKernel copy = seam.kernel(own::copy_spec());
  constexpr std::uint64_t kStride = 4352;
  constexpr std::uint64_t kAlignments[] = {0, 1, 4, 8, 15};
  const Bytes source = random_bytes(kStride);
  const DeviceAddress from = seam.memory_of(source);
  for (const std::uint64_t from_offset : kAlignments) {
    for (const std::uint64_t to_offset : kAlignments) {
      const std::vector<std::uint64_t> sizes = sizes_around_powers_of_two();
      Bytes expected(sizes.size() * kStride, 0x11);
      const DeviceAddress to = seam.memory_of(expected);
      const UniqueGraph graph = seam.graph();
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const std::uint64_t at = i * kStride + to_offset;
        seam.add(graph, copy.node(own::copy_grid(sizes[i]), to + at, from + from_offset, sizes[i]));
        std::copy_n(source.begin() + static_cast<std::ptrdiff_t>(from_offset), sizes[i],
                    expected.begin() + static_cast<std::ptrdiff_t>(at));
      }
      seam.run(graph);
      INFO("from offset " << from_offset << " to offset " << to_offset);
      CHECK(seam.values<std::uint8_t>(to, expected.size()) == expected);
    }
  }
}

TEST_CASE("weft_complete counts its runs into the pinned word", "[device][own]") {
  Seam seam(open_test_device());
  const SeamKernel complete = seam.kernel(own::complete_spec());
  const CompletionMemory memory(seam);
  const UniqueGraph graph = seam.graph();
  seam.add(graph, complete.node({1}, memory.counter, memory.word.device));
  const UniqueExecutable executable = seam.instantiate(graph);
  for (std::uint64_t n = 1; n <= 20; ++n) {
    REQUIRE(seam->launch(executable.get(), seam.stream()).ok());
    while (load_word(memory.word) < n) REQUIRE(seam->health().ok());
    CHECK(load_word(memory.word) == n);
  }
  seam.synchronize();
  CHECK(seam.values<std::uint64_t>(memory.counter, 1).front() == 20);
}

TEST_CASE("weft_copy_complete publishes its bytes before its count", "[device][own]") {
  Seam seam(open_test_device());
  const SeamKernel copy = seam.kernel(own::copy_complete_spec());
  const CompletionMemory memory(seam);
  const auto bytes = GENERATE(std::uint64_t{1}, std::uint64_t{4097}, std::uint64_t{300'001});
  const PinnedMemory input = seam.pinned(bytes);
  const PinnedMemory output = seam.pinned(bytes);
  const UniqueGraph graph = seam.graph();
  seam.add(graph, copy.node(own::copy_grid(bytes), output.device, input.device, bytes, memory.counter, memory.arrivals,
                            memory.word.device));
  const UniqueExecutable executable = seam.instantiate(graph);
  for (std::uint64_t n = 1; n <= 20; ++n) {
    std::memset(input.host, static_cast<int>(n), bytes);
    REQUIRE(seam->launch(executable.get(), seam.stream()).ok());
    while (load_word(memory.word) < n) REQUIRE(seam->health().ok());
    REQUIRE(std::all_of(output.host, output.host + bytes, [&](std::byte byte) { return byte == std::byte(n); }));
  }
  CHECK(load_word(memory.word) == 20);
  seam.synchronize();
  CHECK(seam.values<std::uint32_t>(memory.arrivals, 1).front() == 0);
}

TEST_CASE("weft's own kernels have the compiled layout of their specs", "[device][own]") {
  Seam seam(open_test_device());
  for (const KernelSpec& spec : {own::fill_spec(), own::copy_spec(), own::complete_spec(), own::copy_complete_spec()}) {
    INFO(spec.symbol);
    CHECK(own::is_own_symbol(spec.symbol));
    const CompiledKernel compiled = seam.kernel(spec).compiled;
    CHECK(compiled.parameters == host_layout(spec).parameters);
    CHECK(compiled.max_threads_per_block == spec.block.x);
  }
  CHECK_FALSE(own::is_own_symbol("weft_copying"));
}

TEST_CASE("The grid of a copy covers 4 KiB a block and is capped", "[device][own]") {
  CHECK(own::copy_grid(1) == Dim3{1, 1, 1});
  CHECK(own::copy_grid(4096) == Dim3{1, 1, 1});
  CHECK(own::copy_grid(4097) == Dim3{2, 1, 1});
  CHECK(own::copy_grid(~std::uint64_t{0}) == Dim3{1024, 1, 1});
}

}  // namespace weft::test
