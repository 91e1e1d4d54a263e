#include "catch.h"
#include "device/seam.h"
#include "support/test_kernels.h"

#include <algorithm>
#include <array>

namespace weft::test {

namespace {

using Bytes = std::vector<std::uint8_t>;

std::size_t count(const GraphReadBack& graph, GraphReadBack::NodeReadBack::Kind kind) {
  return static_cast<std::size_t>(std::ranges::count(graph.nodes, kind, &GraphReadBack::NodeReadBack::kind));
}

}  // namespace

TEST_CASE("Nodes run in the order of their edges", "[device]") {
  Seam seam(open_test_device());
  const SeamKernel xor_bytes_kernel = seam.kernel(xor_bytes_spec());
  const DeviceAddress a = seam.memory_of(Bytes(100, 0));
  const DeviceAddress b = seam.memory_of(Bytes(100, 0));
  const DeviceAddress c = seam.memory_of(Bytes(100, 0));
  const UniqueGraph graph = seam.graph();
  const NodeHandle fill = seam.add(graph, FillNode{a, 100, 0x0f});
  const NodeHandle flip =
      seam.add(graph, xor_bytes_kernel.node({1}, a, b, std::uint64_t{100}, std::uint8_t{0xff}), {fill});
  seam.add(graph, CopyNode{c, b, 100}, {flip});
  seam.run(graph);
  CHECK(seam.values<std::uint8_t>(c, 100) == Bytes(100, 0xf0));
}

TEST_CASE("An executable runs again and does not need its graph", "[device]") {
  Seam seam(open_test_device());
  const SeamKernel increment_kernel = seam.kernel(increment_spec());
  const DeviceAddress word = seam.memory_of(std::vector<std::uint32_t>{5});
  UniqueExecutable executable;
  {
    const UniqueGraph graph = seam.graph();
    seam.add(graph, increment_kernel.node({1}, word, std::uint32_t{3}));
    executable = seam.instantiate(graph);
  }
  REQUIRE(seam->upload(executable.get(), seam.stream()).ok());
  for (int i = 0; i < 10; ++i) REQUIRE(seam->launch(executable.get(), seam.stream()).ok());
  CHECK(seam.values<std::uint32_t>(word, 1).front() == 35);
}

TEST_CASE("An executable launched on two streams never overlaps itself", "[device]") {
  Seam seam(open_test_device());
  const SeamKernel increment_kernel = seam.kernel(increment_spec());
  const DeviceAddress word = seam.memory_of(std::vector<std::uint32_t>{0});
  const UniqueGraph graph = seam.graph();
  NodeHandle last = seam.add(graph, increment_kernel.node({1}, word, std::uint32_t{1}));
  for (int i = 0; i < 9; ++i) last = seam.add(graph, increment_kernel.node({1}, word, std::uint32_t{1}), {last});
  const UniqueExecutable executable = seam.instantiate(graph);
  const UniqueStream other = seam.another_stream();
  for (int i = 0; i < 10; ++i) {
    REQUIRE(seam->launch(executable.get(), seam.stream()).ok());
    REQUIRE(seam->launch(executable.get(), other.get()).ok());
  }
  REQUIRE(seam->synchronize_stream(other.get()).ok());
  CHECK(seam.values<std::uint32_t>(word, 1).front() == 200);
}

TEST_CASE("A running executable may be destroyed and its run finishes", "[device]") {
  Seam seam(open_test_device());
  const SeamKernel slow_copy_kernel = seam.kernel(slow_copy_spec());
  const std::vector<std::uint32_t> words(8, 77);
  const DeviceAddress from = seam.memory_of(words);
  const DeviceAddress to = seam.memory(32);
  {
    const UniqueGraph graph = seam.graph();
    seam.add(graph, slow_copy_kernel.node({1}, from, to, std::uint64_t{8}, std::uint64_t{5'000'000}));
    const UniqueExecutable executable = seam.instantiate(graph);
    REQUIRE(seam->launch(executable.get(), seam.stream()).ok());
  }
  CHECK(seam.values<std::uint32_t>(to, 8) == words);
}

TEST_CASE("Setting a node of a graph changes what it does", "[device]") {
  Seam seam(open_test_device());
  const DeviceAddress a = seam.memory_of(Bytes(16, 0));
  const DeviceAddress b = seam.memory_of(Bytes(16, 0));
  const UniqueGraph graph = seam.graph();
  const NodeHandle node = seam.add(graph, FillNode{a, 16, 1});
  REQUIRE(seam->set_node(graph.get(), node, FillNode{b, 8, 2}).ok());
  seam.run(graph);
  CHECK(seam.values<std::uint8_t>(a, 16) == Bytes(16, 0));
  CHECK(seam.values<std::uint8_t>(b, 16) == Bytes({2, 2, 2, 2, 2, 2, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0}));
}

TEST_CASE("Setting a node of an executable changes that executable alone", "[device]") {
  Seam seam(open_test_device());
  const SeamKernel increment_kernel = seam.kernel(increment_spec());
  const DeviceAddress word = seam.memory_of(std::vector<std::uint32_t>{0});
  const UniqueGraph graph = seam.graph();
  const NodeHandle node = seam.add(graph, increment_kernel.node({1}, word, std::uint32_t{1}));
  const UniqueExecutable first = seam.instantiate(graph);
  const UniqueExecutable second = seam.instantiate(graph);
  REQUIRE(seam->set_executable_node(second.get(), node, increment_kernel.node({1}, word, std::uint32_t{100})).ok());
  seam.run(first);
  CHECK(seam.values<std::uint32_t>(word, 1).front() == 1);
  seam.run(second);
  CHECK(seam.values<std::uint32_t>(word, 1).front() == 101);
}

TEST_CASE("A node is set only to a node of its kind", "[device]") {
  Seam seam(open_test_device());
  const DeviceAddress a = seam.memory_of(Bytes(16, 3));
  const UniqueGraph graph = seam.graph();
  const NodeHandle node = seam.add(graph, FillNode{a, 8, 1});
  const UniqueExecutable executable = seam.instantiate(graph);
  const CopyNode copy{a, a + 8, 8};
  CHECK(seam->set_node(graph.get(), node, copy).code == StatusCode::invalid);
  CHECK(seam->set_executable_node(executable.get(), node, copy).code == StatusCode::invalid);
  CHECK(seam->set_node(graph.get(), node, FillNode{a, 17, 1}).code == StatusCode::invalid);
  seam.run(executable);
  CHECK(seam.values<std::uint8_t>(a, 9) == Bytes({1, 1, 1, 1, 1, 1, 1, 1, 3}));
}

TEST_CASE("A graph is read back with its nodes and symbols and edges", "[device]") {
  Seam seam(open_test_device());
  const SeamKernel increment_kernel = seam.kernel(increment_spec());
  const DeviceAddress a = seam.memory(64);
  const UniqueGraph graph = seam.graph();
  const NodeHandle fill = seam.add(graph, FillNode{a, 64, 0});
  const NodeHandle left = seam.add(graph, increment_kernel.node({1}, a, std::uint32_t{1}), {fill});
  const NodeHandle right = seam.add(graph, increment_kernel.node({1}, a + 4, std::uint32_t{1}), {fill});
  const NodeHandle copy = seam.add(graph, CopyNode{a + 8, a, 8}, {left, right});

  GraphReadBack back;
  REQUIRE(seam->read_back(graph.get(), back).ok());
  using Kind = GraphReadBack::NodeReadBack::Kind;
  CHECK(count(back, Kind::fill) == 1);
  CHECK(count(back, Kind::copy) == 1);
  CHECK(count(back, Kind::kernel) == 2);
  CHECK(back.nodes.size() == 4);
  for (const auto& node : back.nodes) {
    CHECK(node.symbol == (node.handle == left || node.handle == right ? "increment" : ""));
  }
  const auto has_edge = [&](NodeHandle from, NodeHandle to) {
    return std::ranges::any_of(
        back.edges, [&](const auto& edge) { return edge.from == from && edge.to == to && !edge.programmatic; });
  };
  CHECK(back.edges.size() == 4);
  CHECK(has_edge(fill, left));
  CHECK(has_edge(fill, right));
  CHECK(has_edge(left, copy));
  CHECK(has_edge(right, copy));
}

TEST_CASE("Edges from a foreign graph or given twice are refused and add nothing", "[device]") {
  Seam seam(open_test_device());
  const DeviceAddress a = seam.memory(64);
  const UniqueGraph graph = seam.graph();
  const UniqueGraph other = seam.graph();
  const NodeHandle here = seam.add(graph, FillNode{a, 64, 0});
  const NodeHandle foreign = seam.add(other, FillNode{a, 64, 0});
  NodeHandle handle{};
  const std::array twice{Edge{here}, Edge{here}};
  const std::array strange{Edge{foreign}};
  CHECK(seam->add_node(graph.get(), FillNode{a, 8, 0}, twice, handle).code == StatusCode::invalid);
  CHECK(seam->add_node(graph.get(), FillNode{a, 8, 0}, strange, handle).code == StatusCode::invalid);
  CHECK(handle == NodeHandle::none);
  GraphReadBack back;
  REQUIRE(seam->read_back(graph.get(), back).ok());
  CHECK(back.nodes.size() == 1);
}

TEST_CASE("A programmatic edge from a fill is refused", "[device]") {
  Seam seam(open_test_device());
  const SeamKernel increment_kernel = seam.kernel(increment_spec());
  const DeviceAddress a = seam.memory(64);
  const UniqueGraph graph = seam.graph();
  const std::array edges{Edge{seam.add(graph, FillNode{a, 64, 0}), true}};
  NodeHandle handle{};
  CHECK_FALSE(seam->add_node(graph.get(), increment_kernel.node({1}, a, std::uint32_t{1}), edges, handle).ok());
}

TEST_CASE("A chain of 3000 nodes runs in order", "[device]") {
  Seam seam(open_test_device());
  const SeamKernel digest_kernel = seam.kernel(digest_spec());
  const DeviceAddress byte = seam.memory_of(Bytes{1});
  const DeviceAddress word = seam.memory_of(std::vector<std::int64_t>{0});
  const UniqueGraph graph = seam.graph();
  NodeHandle last{};
  std::int64_t expected = 0;
  for (std::uint64_t i = 0; i < 3000; ++i) {
    const Node node = digest_kernel.node({1}, byte, word, std::uint64_t{1}, i);
    last = i == 0 ? seam.add(graph, node) : seam.add(graph, node, {last});
    expected = digest_of(Bytes{1}, expected, i);
  }
  seam.run(graph);
  CHECK(seam.values<std::int64_t>(word, 1).front() == expected);
}

}  // namespace weft::test
