#include "device/own_kernels.h"

#include "catch.h"
#include "device/host/host_kernel.h"
#include "device/seam.h"

#include <algorithm>
#include <array>
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

/// Copy entries in pinned memory: in and out of ranges at odd addresses and of odd sizes, each in a part of its own.
class CopyTable {
 public:
  CopyTable(Seam& seam, std::vector<std::uint64_t> sizes)
      : seam_(seam), sizes_(std::move(sizes)), source_(random_bytes(sizes_.size() * kStride)) {
    from_ = seam.memory_of(source_);
    expected_.assign(source_.size(), 0x11);
    to_ = seam.memory_of(expected_);
    table_ = seam.pinned(sizes_.size() * sizeof(own::CopyEntry));
    for (std::uint32_t i = 0; i < count(); ++i) entry(i) = {to_ + to_offset(i), from_ + from_offset(i), sizes_[i]};
  }

  [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(sizes_.size()); }
  [[nodiscard]] std::uint64_t largest() const { return *std::ranges::max_element(sizes_); }
  [[nodiscard]] DeviceAddress entries() const { return table_.device; }
  [[nodiscard]] own::CopyEntry& entry(std::uint32_t i) const {
    return reinterpret_cast<own::CopyEntry*>(table_.host)[i];
  }
  /// What the copied memory must hold, when the entries other than these have been copied.
  [[nodiscard]] Bytes expected(std::initializer_list<std::uint32_t> skipped = {}) const {
    Bytes bytes = expected_;
    for (std::uint32_t i = 0; i < count(); ++i) {
      if (std::ranges::find(skipped, i) != skipped.end()) continue;
      std::copy_n(source_.begin() + static_cast<std::ptrdiff_t>(from_offset(i)), sizes_[i],
                  bytes.begin() + static_cast<std::ptrdiff_t>(to_offset(i)));
    }
    return bytes;
  }
  [[nodiscard]] Bytes untouched() const { return expected_; }
  [[nodiscard]] Bytes copied() const { return seam_.values<std::uint8_t>(to_, expected_.size()); }

 private:
  static constexpr std::uint64_t kStride = 12'544;
  // Both sides aligned alike for some entries, differently for others.
  static std::uint64_t to_offset(std::uint64_t i) { return i * kStride + i % 17; }
  static std::uint64_t from_offset(std::uint64_t i) { return i * kStride + i * 3 % 17; }

  Seam& seam_;
  std::vector<std::uint64_t> sizes_;
  Bytes source_;
  Bytes expected_;
  DeviceAddress from_ = 0;
  DeviceAddress to_ = 0;
  PinnedMemory table_;
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

TEST_CASE("weft_copy_table copies every entry and no other byte at any alignment and size", "[device][own]") {
  Seam seam(open_test_device());
  const SeamKernel copy = seam.kernel(own::copy_table_spec());
  std::vector<std::uint64_t> sizes = sizes_around_powers_of_two();
  sizes.push_back(12'289);  // Three blocks and a byte.
  const CopyTable table(seam, sizes);
  const UniqueGraph graph = seam.graph();
  const Dim3 grid = own::copy_table_grid(table.largest(), table.count());
  CHECK(grid == Dim3{4, table.count(), 1});
  seam.add(graph, copy.node(grid, table.entries(), table.count()));
  seam.run(graph);
  CHECK(table.copied() == table.expected());
}

TEST_CASE("weft_copy_table takes more entries than its grid has rows in turns", "[device][own]") {
  Seam seam(open_test_device());
  const SeamKernel copy = seam.kernel(own::copy_table_spec());
  const CopyTable table(seam, {1, 4097, 3, 64, 5000, 12'289, 7});
  const UniqueGraph graph = seam.graph();
  seam.add(graph, copy.node({2, 3, 1}, table.entries(), table.count()));
  seam.run(graph);
  CHECK(table.copied() == table.expected());
}

TEST_CASE("weft_copy_table skips entries with a null address or no bytes", "[device][own]") {
  Seam seam(open_test_device());
  const SeamKernel copy = seam.kernel(own::copy_table_spec());
  const CopyTable table(seam, {4097, 17, 300, 1, 12'289});
  table.entry(0).destination = 0;
  table.entry(2).source = 0;
  table.entry(3).bytes = 0;
  const UniqueGraph graph = seam.graph();
  seam.add(graph, copy.node(own::copy_table_grid(table.largest(), table.count()), table.entries(), table.count()));
  seam.run(graph);
  CHECK(table.copied() == table.expected({0, 2, 3}));
}

TEST_CASE("A launch of weft_copy_table reads the entries that stand when it runs", "[device][own]") {
  Seam seam(open_test_device());
  const SeamKernel copy = seam.kernel(own::copy_table_spec());
  const CopyTable table(seam, {4097, 17, 300});
  const UniqueGraph graph = seam.graph();
  seam.add(graph, copy.node(own::copy_table_grid(table.largest(), table.count()), table.entries(), table.count()));
  const UniqueExecutable executable = seam.instantiate(graph);
  const own::CopyEntry second = table.entry(1);
  for (std::uint32_t i = 0; i < table.count(); ++i) table.entry(i).bytes = 0;
  seam.run(executable);
  CHECK(table.copied() == table.untouched());
  table.entry(1) = second;
  seam.run(executable);
  CHECK(table.copied() == table.expected({0, 2}));
}

TEST_CASE("weft_copy_table_complete publishes its bytes before its count", "[device][own]") {
  Seam seam(open_test_device());
  const SeamKernel copy = seam.kernel(own::copy_table_complete_spec());
  const CompletionMemory memory(seam);
  constexpr std::array<std::uint64_t, 3> kSizes{1, 4097, 100'003};
  std::vector<PinnedMemory> inputs;
  std::vector<PinnedMemory> outputs;
  const PinnedMemory table = seam.pinned(kSizes.size() * sizeof(own::CopyEntry));
  for (std::size_t i = 0; i < kSizes.size(); ++i) {
    inputs.push_back(seam.pinned(kSizes[i]));
    outputs.push_back(seam.pinned(kSizes[i]));
    reinterpret_cast<own::CopyEntry*>(table.host)[i] = {outputs[i].device, inputs[i].device, kSizes[i]};
  }
  const std::uint32_t count = kSizes.size();
  const UniqueGraph graph = seam.graph();
  seam.add(graph, copy.node(own::copy_table_grid(kSizes.back(), count), table.device, count, memory.counter,
                            memory.arrivals, memory.word.device));
  const UniqueExecutable executable = seam.instantiate(graph);
  for (std::uint64_t n = 1; n <= 20; ++n) {
    for (std::size_t i = 0; i < count; ++i) std::memset(inputs[i].host, static_cast<int>(n + i), kSizes[i]);
    REQUIRE(seam->launch(executable.get(), seam.stream()).ok());
    while (load_word(memory.word) < n) REQUIRE(seam->health().ok());
    for (std::size_t i = 0; i < count; ++i) {
      const auto is_new = [&](std::byte byte) { return byte == std::byte(n + i); };
      REQUIRE(std::all_of(outputs[i].host, outputs[i].host + kSizes[i], is_new));
    }
  }
  seam.synchronize();
  CHECK(load_word(memory.word) == 20);
  CHECK(seam.values<std::uint64_t>(memory.counter, 1).front() == 20);
  CHECK(seam.values<std::uint32_t>(memory.arrivals, 1).front() == 0);
}

TEST_CASE("weft_copy_table_complete completes where every entry is skipped and where there is none", "[device][own]") {
  Seam seam(open_test_device());
  const SeamKernel copy = seam.kernel(own::copy_table_complete_spec());
  const CopyTable table(seam, {5000, 1, 17});
  const auto count = GENERATE_COPY(std::uint32_t{0}, table.count());
  for (std::uint32_t i = 0; i < table.count(); ++i) table.entry(i).source = 0;
  const CompletionMemory memory(seam);
  const UniqueGraph graph = seam.graph();
  seam.add(graph, copy.node(own::copy_table_grid(table.largest(), count), table.entries(), count, memory.counter,
                            memory.arrivals, memory.word.device));
  const UniqueExecutable executable = seam.instantiate(graph);
  for (std::uint64_t n = 1; n <= 3; ++n) {
    seam.run(executable);
    CHECK(load_word(memory.word) == n);
    CHECK(seam.values<std::uint32_t>(memory.arrivals, 1).front() == 0);
  }
  CHECK(table.copied() == table.untouched());
}

TEST_CASE("weft's own kernels have the compiled layout of their specs", "[device][own]") {
  Seam seam(open_test_device());
  for (const KernelSpec& spec : {own::fill_spec(), own::copy_spec(), own::complete_spec(), own::copy_complete_spec(),
                                 own::copy_table_spec(), own::copy_table_complete_spec()}) {
    INFO(spec.symbol);
    CHECK(own::is_own_symbol(spec.symbol));
    const CompiledKernel compiled = seam.kernel(spec).compiled;
    CHECK(compiled.parameters == host_layout(spec).parameters);
    CHECK(compiled.max_threads_per_block == spec.block.x);
    CHECK(compiled.static_shared_bytes == host_layout(spec).static_shared_bytes);
  }
  CHECK_FALSE(own::is_own_symbol("weft_copying"));
}

TEST_CASE("The grid of a copy covers 4 KiB a block and is capped", "[device][own]") {
  CHECK(own::copy_table_grid(0, 0) == Dim3{1, 1, 1});
  CHECK(own::copy_table_grid(4097, 3) == Dim3{2, 3, 1});
  CHECK(own::copy_table_grid(~std::uint64_t{0}, ~std::uint32_t{0}) == Dim3{1024, 65535, 1});
  CHECK(own::copy_grid(1) == Dim3{1, 1, 1});
  CHECK(own::copy_grid(4096) == Dim3{1, 1, 1});
  CHECK(own::copy_grid(4097) == Dim3{2, 1, 1});
  CHECK(own::copy_grid(~std::uint64_t{0}) == Dim3{1024, 1, 1});
}

}  // namespace weft::test
