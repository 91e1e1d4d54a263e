#include "catch.h"
#include "device/own_kernels.h"
#include "device/seam.h"

#include <algorithm>
#include <vector>

// Fills inside a larger allocation of the pool, as nodes and by weft's kernel, made anew and set to another place.

namespace weft::test {

namespace {

using Bytes = std::vector<std::uint8_t>;

constexpr std::uint64_t kSizes[] = {1, 2, 3, 5, 7, 280, 4095, 4097};
constexpr std::uint64_t kOffsets[] = {0, 1, 3};
constexpr std::uint8_t kValues[] = {0x00, 0xa5, 0xff};
constexpr std::uint64_t kAllocated = 16'384;
constexpr std::uint64_t kFirst = 256;        // A fill starts here, plus its offset.
constexpr std::uint64_t kSecond = 8192 + 5;  // And here when it is set to another place.
constexpr std::uint8_t kUntouched = 0x11;

Bytes filled(std::uint64_t at, std::uint64_t size, std::uint8_t value) {
  Bytes bytes(kAllocated, kUntouched);
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), size, value);
  return bytes;
}

/// Runs `make(address, size, value)` in all ways that a node gets its place, and compares every byte.
template <class Make>
void fill_everywhere(Seam& seam, Make&& make) {
  const DeviceAddress memory = seam.memory(kAllocated);
  const auto reset = [&] { check(seam->fill(seam.stream(), {memory, kAllocated, kUntouched}), "fill"); };
  const auto holds = [&](const Bytes& expected) { return seam.values<std::uint8_t>(memory, kAllocated) == expected; };
  for (const std::uint64_t size : kSizes) {
    for (const std::uint64_t offset : kOffsets) {
      for (const std::uint8_t value : kValues) {
        INFO(size << " bytes of " << int{value} << " at offset " << offset);
        const std::uint64_t first = kFirst + offset;
        const std::uint64_t second = kSecond + offset;
        const UniqueGraph graph = seam.graph();
        const NodeHandle node = seam.add(graph, make(memory + first, size, value));
        const UniqueExecutable executable = seam.instantiate(graph);
        reset();
        seam.run(executable);
        CHECK(holds(filled(first, size, value)));

        REQUIRE(seam->set_executable_node(executable.get(), node, make(memory + second, size, value)).ok());
        reset();
        seam.run(executable);
        CHECK(holds(filled(second, size, value)));

        REQUIRE(seam->set_node(graph.get(), node, make(memory + second + 1, size, value)).ok());
        reset();
        seam.run(graph);
        CHECK(holds(filled(second + 1, size, value)));
        reset();
        seam.run(executable);
        CHECK(holds(filled(second, size, value)));
      }
    }
  }
}

}  // namespace

TEST_CASE("A fill node at any place sets exactly its bytes and can be set to another place", "[device][case19]") {
  Seam seam(open_test_device());
  fill_everywhere(seam, [](DeviceAddress address, std::uint64_t size, std::uint8_t value) {
    return FillNode{address, size, value};
  });
}

TEST_CASE("weft_fill at any place sets exactly its bytes and can be set to another place",
          "[device][own][case19][case44]") {
  Seam seam(open_test_device());
  const SeamKernel fill = seam.kernel(own::fill_spec());
  fill_everywhere(seam, [&](DeviceAddress address, std::uint64_t size, std::uint8_t value) {
    return fill.node(own::copy_grid(size), address, size, value);
  });
}

TEST_CASE("A fill node can be set to another size", "[device][case19]") {
  Seam seam(open_test_device());
  const DeviceAddress memory = seam.memory_of(Bytes(kAllocated, kUntouched));
  const UniqueGraph graph = seam.graph();
  const NodeHandle node = seam.add(graph, FillNode{memory + 1, 4097, 0xff});
  const UniqueExecutable executable = seam.instantiate(graph);
  REQUIRE(seam->set_executable_node(executable.get(), node, FillNode{memory + 3, 5, 0xa5}).ok());
  seam.run(executable);
  CHECK(seam.values<std::uint8_t>(memory, kAllocated) == filled(3, 5, 0xa5));
  CHECK(seam->set_executable_node(executable.get(), node, FillNode{memory + 3, kAllocated, 0xa5}).code ==
        StatusCode::invalid);
}

}  // namespace weft::test
