#include "catch.h"
#include "cuda/gpu.h"

#include <algorithm>
#include <atomic>
#include <random>

// Graphs of the CUDA side, through the seam.

namespace weft::test {
namespace {

using Kind = GraphReadBack::NodeReadBack::Kind;

/// A graph that a test builds; destroyed with it.
class Built {
 public:
  explicit Built(const Gpu& gpu) : gpu_(gpu) { must(gpu.api->create_graph(graph)); }
  Built(const Built&) = delete;
  Built& operator=(const Built&) = delete;
  ~Built() { static_cast<void>(gpu_.api->destroy_graph(graph)); }

  NodeHandle add(const Node& node, std::vector<Edge> edges = {}) {
    NodeHandle handle{};
    must(gpu_.api->add_node(graph, node, edges, handle));
    return handle;
  }

  GraphHandle graph{};

 private:
  const Gpu& gpu_;
};

std::vector<std::byte> random_bytes(std::uint64_t count, std::uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(engine());
  return bytes;
}

TEST_CASE("A graph is read back node for node and edge for edge", "[cuda][cuda-only]") {
  const Gpu gpu;
  const DeviceAddress memory = gpu.allocate(4096);
  const Gpu::Kernel copy = gpu.kernel(own::copy_spec());
  Built built(gpu);
  const NodeHandle fill = built.add(FillNode{memory, 280, 7});
  const NodeHandle move = built.add(CopyNode{memory + 1024, memory, 280}, {{fill}});
  const NodeHandle kernel =
      built.add(launch_of(copy, {1, 1, 1}, memory + 2048, memory + 1024, std::uint64_t{280}), {{fill}, {move}});

  GraphReadBack found;
  must(gpu.api->read_back(built.graph, found));
  REQUIRE(found.nodes.size() == 3);
  const auto node = [&](NodeHandle handle) {
    return *std::ranges::find(found.nodes, handle, &GraphReadBack::NodeReadBack::handle);
  };
  CHECK(node(fill).kind == Kind::fill);
  CHECK(node(move).kind == Kind::copy);
  CHECK(node(kernel).kind == Kind::kernel);
  CHECK(node(kernel).symbol == "weft_copy");
  CHECK(node(fill).symbol.empty());

  const auto has_edge = [&](NodeHandle from, NodeHandle to) {
    return std::ranges::count_if(
        found.edges, [&](const auto& edge) { return edge.from == from && edge.to == to && !edge.programmatic; });
  };
  CHECK(found.edges.size() == 3);
  CHECK(has_edge(fill, move) == 1);
  CHECK(has_edge(fill, kernel) == 1);
  CHECK(has_edge(move, kernel) == 1);

  gpu.run(built.graph);
  CHECK(gpu.read(memory + 2048, 280) == std::vector<std::byte>(280, std::byte{7}));
  must(gpu.api->free(gpu.stream, memory));
}

TEST_CASE("A programmatic edge is read back as one", "[cuda][cuda-only]") {
  const Gpu gpu;
  if (gpu.api->limits().compute_capability < 90) return;
  const DeviceAddress memory = gpu.allocate(1024);
  const Gpu::Kernel copy = gpu.kernel(own::copy_spec());
  Built built(gpu);
  const NodeHandle first = built.add(launch_of(copy, {1, 1, 1}, memory, memory + 256, std::uint64_t{64}));
  const NodeHandle second = built.add(launch_of(copy, {1, 1, 1}, memory + 512, memory + 768, std::uint64_t{64}));
  static_cast<void>(built.add(launch_of(copy, {1, 1, 1}, memory + 128, memory + 896, std::uint64_t{64}),
                              {{first, true}, {second, false}}));

  GraphReadBack found;
  must(gpu.api->read_back(built.graph, found));
  REQUIRE(found.edges.size() == 2);
  for (const auto& edge : found.edges) CHECK(edge.programmatic == (edge.from == first));
  gpu.run(built.graph);
  must(gpu.api->free(gpu.stream, memory));
}

TEST_CASE("A graph of no nodes is read back empty", "[cuda][cuda-only]") {
  const Gpu gpu;
  const Built built(gpu);
  GraphReadBack found;
  must(gpu.api->read_back(built.graph, found));
  CHECK(found.nodes.empty());
  CHECK(found.edges.empty());
}

TEST_CASE("Copy kernels move every byte and no other at any size and alignment", "[cuda][cuda-only]") {
  const Gpu gpu;
  const Gpu::Kernel copy = gpu.kernel(own::copy_spec());
  const Gpu::Kernel copy_complete = gpu.kernel(own::copy_complete_spec());
  constexpr std::uint64_t kLargest = (std::uint64_t{1} << 20) + 1;
  constexpr std::uint64_t kMargin = 32;
  constexpr std::uint64_t kSpan = kLargest + 2 * kMargin;
  const DeviceAddress memory = gpu.allocate(kSpan);
  const DeviceAddress words = gpu.allocate(256);
  must(gpu.api->fill(gpu.stream, {words, 256, 0}));
  PinnedMemory in;
  PinnedMemory out;
  PinnedMemory line;
  must(gpu.api->allocate_pinned(kSpan, in));
  must(gpu.api->allocate_pinned(kSpan, out));
  must(gpu.api->allocate_pinned(128, line));
  const std::vector<std::byte> data = random_bytes(kSpan, 77);
  std::ranges::copy(data, in.host);

  std::uint64_t runs = 0;
  for (const std::uint64_t bytes : {std::uint64_t{1}, std::uint64_t{15}, std::uint64_t{16}, std::uint64_t{17},
                                    std::uint64_t{4095}, std::uint64_t{4096}, std::uint64_t{4097}, kLargest}) {
    for (const auto& [in_offset, device_offset, out_offset] :
         {std::array<std::uint64_t, 3>{0, 0, 0}, {1, 1, 17}, {3, 0, 5}, {0, 16, 15}}) {
      INFO(bytes << " bytes from " << in_offset << " over " << device_offset << " to " << out_offset);
      must(gpu.api->fill(gpu.stream, {out.device, kSpan, 0xEE}));
      must(gpu.api->fill(gpu.stream, {memory, kSpan, 0xDD}));
      Built built(gpu);
      const NodeHandle first =
          built.add(launch_of(copy, own::copy_grid(bytes), memory + device_offset, in.device + in_offset, bytes));
      static_cast<void>(built.add(launch_of(copy_complete, own::copy_grid(bytes), out.device + out_offset,
                                            memory + device_offset, bytes, words, words + 128, line.device),
                                  {{first}}));
      gpu.run(built.graph);
      ++runs;

      const std::span<const std::byte> written(out.host, kSpan);
      CHECK(std::ranges::equal(written.subspan(out_offset, bytes), std::span(data).subspan(in_offset, bytes)));
      const auto untouched = [](std::byte byte) { return byte == std::byte{0xEE}; };
      CHECK(std::ranges::all_of(written.first(out_offset), untouched));
      CHECK(std::ranges::all_of(written.subspan(out_offset + bytes), untouched));
      CHECK(std::atomic_ref(*reinterpret_cast<std::uint64_t*>(line.host)).load(std::memory_order_acquire) == runs);
      CHECK(gpu.read(words + 128, 4) == std::vector<std::byte>(4));
    }
  }

  for (const DeviceAddress address : {memory, words}) must(gpu.api->free(gpu.stream, address));
  for (const PinnedMemory& pinned : {in, out, line}) must(gpu.api->free_pinned(pinned.host));
}

TEST_CASE("The host that sees the completion word sees every byte before the stream is drained", "[cuda][cuda-only]") {
  const Gpu gpu;
  const Gpu::Kernel fill = gpu.kernel(own::fill_spec());
  const Gpu::Kernel complete = gpu.kernel(own::complete_spec());
  constexpr std::uint64_t kBytes = 1 << 16;
  constexpr std::uint64_t kRuns = 200;
  PinnedMemory out;
  PinnedMemory line;
  must(gpu.api->allocate_pinned(kBytes, out));
  must(gpu.api->allocate_pinned(128, line));
  const DeviceAddress counter = gpu.allocate(8);
  must(gpu.api->fill(gpu.stream, {counter, 8, 0}));
  const std::atomic_ref word(*reinterpret_cast<std::uint64_t*>(line.host));

  Built built(gpu);
  const auto fill_node = [&](std::uint64_t run) {
    return launch_of(fill, own::copy_grid(kBytes), out.device, kBytes, static_cast<std::uint8_t>(run));
  };
  const NodeHandle filled = built.add(fill_node(0));
  static_cast<void>(built.add(launch_of(complete, {1, 1, 1}, counter, line.device), {{filled}}));
  ExecutableHandle executable{};
  must(gpu.api->instantiate(built.graph, executable));
  must(gpu.api->upload(executable, gpu.stream));

  std::uint64_t wrong = 0;
  for (std::uint64_t run = 1; run <= kRuns; ++run) {
    must(gpu.api->synchronize_stream(gpu.stream));
    must(gpu.api->set_executable_node(executable, filled, fill_node(run)));
    must(gpu.api->launch(executable, gpu.stream));
    while (word.load(std::memory_order_acquire) < run) {
    }
    wrong += static_cast<std::uint64_t>(std::count_if(
        out.host, out.host + kBytes, [&](std::byte byte) { return byte != static_cast<std::byte>(run); }));
  }
  CHECK(wrong == 0);

  must(gpu.api->destroy_executable(executable));
  must(gpu.api->free(gpu.stream, counter));
  must(gpu.api->synchronize_stream(gpu.stream));
  for (const PinnedMemory& pinned : {out, line}) must(gpu.api->free_pinned(pinned.host));
}

TEST_CASE("Nodes are pointed elsewhere in a graph and in an executable", "[cuda][cuda-only]") {
  const Gpu gpu;
  const DeviceAddress memory = gpu.allocate(2048);
  must(gpu.api->fill(gpu.stream, {memory, 2048, 0}));
  const Gpu::Kernel copy = gpu.kernel(own::copy_spec());
  const auto kernel_node = [&](DeviceAddress to, DeviceAddress from) {
    return launch_of(copy, {1, 1, 1}, to, from, std::uint64_t{16});
  };
  Built built(gpu);
  const NodeHandle fill = built.add(FillNode{memory, 16, 1});
  const NodeHandle move = built.add(CopyNode{memory + 256, memory, 16}, {{fill}});
  const NodeHandle kernel = built.add(kernel_node(memory + 512, memory + 256), {{move}});

  must(gpu.api->set_node(built.graph, fill, FillNode{memory + 16, 32, 2}));
  must(gpu.api->set_node(built.graph, move, CopyNode{memory + 256, memory + 16, 32}));
  must(gpu.api->set_node(built.graph, kernel, kernel_node(memory + 768, memory + 272)));
  ExecutableHandle executable{};
  must(gpu.api->instantiate(built.graph, executable));
  must(gpu.api->launch(executable, gpu.stream));
  CHECK(gpu.read(memory, 16) == std::vector<std::byte>(16));
  CHECK(gpu.read(memory + 512, 16) == std::vector<std::byte>(16));
  CHECK(gpu.read(memory + 768, 16) == std::vector<std::byte>(16, std::byte{2}));

  must(gpu.api->set_executable_node(executable, fill, FillNode{memory + 1024, 48, 3}));
  must(gpu.api->set_executable_node(executable, move, CopyNode{memory + 1280, memory + 1024, 48}));
  must(gpu.api->set_executable_node(executable, kernel, kernel_node(memory + 1536, memory + 1312)));
  must(gpu.api->launch(executable, gpu.stream));
  CHECK(gpu.read(memory + 1536, 16) == std::vector<std::byte>(16, std::byte{3}));
  must(gpu.api->destroy_executable(executable));
  must(gpu.api->free(gpu.stream, memory));
}

TEST_CASE("An executable outlives its graph and finishes when it is destroyed while it runs", "[cuda][cuda-only]") {
  constexpr std::uint64_t kBytes = std::uint64_t{256} << 20;
  const Gpu gpu;
  const DeviceAddress memory = gpu.allocate(kBytes);
  ExecutableHandle executable{};
  {
    Built built(gpu);
    static_cast<void>(built.add(FillNode{memory, kBytes, 9}));
    must(gpu.api->instantiate(built.graph, executable));
  }
  must(gpu.api->launch(executable, gpu.stream));
  must(gpu.api->destroy_executable(executable));
  CHECK(gpu.read(memory + kBytes - 16, 16) == std::vector<std::byte>(16, std::byte{9}));
  must(gpu.api->free(gpu.stream, memory));
}

TEST_CASE("A node that cannot run is refused when it is added and harms nothing", "[cuda][cuda-only]") {
  const Gpu gpu;
  const DeviceAddress memory = gpu.allocate(512);
  const Gpu::Kernel copy = gpu.kernel(own::copy_spec());
  const KernelNode good = launch_of(copy, {1, 1, 1}, memory, memory + 256, std::uint64_t{16});
  Built built(gpu);
  NodeHandle handle{};
  const auto refused = [&](const Node& node) {
    return gpu.api->add_node(built.graph, node, {}, handle).code == StatusCode::invalid;
  };
  CHECK(refused(FillNode{memory, 0, 0}));
  CHECK(refused(CopyNode{memory, memory + 256, 0}));
  CHECK(refused(FillNode{memory, 513, 0}));
  KernelNode node = good;
  node.grid = {0, 1, 1};
  CHECK(refused(node));
  node = good;
  node.grid = {1, 65536, 1};
  CHECK(refused(node));
  node = good;
  node.block = {257, 1, 1};  // Above the kernel's launch bounds.
  CHECK(refused(node));
  node = good;
  node.parameters.pop_back();
  CHECK(refused(node));
  node = good;
  node.kernel = KernelHandle::none;
  CHECK(refused(node));

  CHECK(handle == NodeHandle::none);
  CHECK(gpu.api->health().ok());
  static_cast<void>(built.add(good));
  gpu.run(built.graph);
  must(gpu.api->free(gpu.stream, memory));
}

}  // namespace
}  // namespace weft::test
