#include "catch.h"
#include "device/faults.h"
#include "device/host/host_device.h"
#include "device/seam.h"
#include "support/test_kernels.h"

#include <algorithm>
#include <array>
#include <random>
#include <thread>

namespace weft::test {

namespace {

using Bytes = std::vector<std::uint8_t>;

/// Fills one byte each, as `count` nodes that nothing orders; the bytes tell which have run.
UniqueGraph independent_fills(const Seam& seam, DeviceAddress memory, std::uint64_t count) {
  UniqueGraph graph = seam.graph();
  for (std::uint64_t i = 0; i < count; ++i) seam.add(graph, FillNode{memory + i, 1, 1});
  return graph;
}

/// A held device on which a graph of independent fills is launched.
struct HeldFills {
  explicit HeldFills(std::uint64_t count)
      : memory(seam.pinned(count)), executable(seam.instantiate(independent_fills(seam, memory.device, count))) {
    host->hold();
    check(host->launch(executable.get(), seam.stream()), "launch");
  }

  std::shared_ptr<HostDevice> host = make_host_device();
  Seam seam{host};
  PinnedMemory memory;
  UniqueExecutable executable;
};

std::size_t ones(const PinnedMemory& memory, std::size_t count) {
  return static_cast<std::size_t>(std::count(memory.host, memory.host + count, std::byte{1}));
}

/// A random program over eight words: each node folds one word into another, and edges join whatever touches the same
/// word. Word 8 + i keeps what node i saw of its inputs, so that the trace of a run is compared and not only its
/// results.
struct DigestProgram {
  struct Step {
    std::uint64_t source;
    std::uint64_t target;
  };
  std::vector<Step> steps;

  static constexpr std::uint64_t kWords = 8;
  static constexpr std::uint64_t kSteps = 24;

  explicit DigestProgram(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    for (std::uint64_t i = 0; i < kSteps; ++i) steps.push_back({random() % kWords, random() % kWords});
  }

  [[nodiscard]] static bool conflict(const Step& a, const Step& b) {
    return a.target == b.target || a.target == b.source || a.source == b.target;
  }

  /// Runs on the device and returns all words.
  [[nodiscard]] std::vector<std::int64_t> run(Seam& seam) const {
    const SeamKernel digest_kernel = seam.kernel(digest_spec());
    std::vector<std::int64_t> words(kWords + 2 * kSteps, 0);
    for (std::uint64_t i = 0; i < kWords; ++i) words[i] = static_cast<std::int64_t>(i + 1);
    const DeviceAddress memory = seam.memory_of(words);
    const auto at = [&](std::uint64_t index) { return memory + index * sizeof(std::int64_t); };
    const UniqueGraph graph = seam.graph();
    std::vector<NodeHandle> last;
    for (std::uint64_t i = 0; i < steps.size(); ++i) {
      std::vector<Edge> edges;
      for (std::uint64_t j = 0; j < i; ++j) {
        if (conflict(steps[j], steps[i])) edges.push_back({last[j]});
      }
      // Three nodes a step: digests of source and target before, then the step itself.
      const auto add = [&](const Node& node) {
        NodeHandle handle{};
        check(seam->add_node(graph.get(), node, edges, handle), "add a node");
        edges = {{handle}};
        return handle;
      };
      const std::uint64_t log = kWords + 2 * i;
      add(digest_kernel.node({1}, at(steps[i].source), at(log), std::uint64_t{8}, i));
      add(digest_kernel.node({1}, at(steps[i].target), at(log + 1), std::uint64_t{8}, i));
      last.push_back(add(digest_kernel.node({1}, at(steps[i].source), at(steps[i].target), std::uint64_t{8}, i)));
    }
    seam.run(graph);
    return seam.values<std::int64_t>(memory, words.size());
  }
};

std::vector<std::int64_t> run_on_host(const DigestProgram& program, HostOptions options) {
  Seam seam(make_host_device(std::move(options)));
  return program.run(seam);
}

}  // namespace

TEST_CASE("A held host device runs nothing and launch returns at once", "[device][host-only]") {
  const auto [host, seam, memory, executable] = HeldFills(4);
  CHECK(host->query_stream(seam.stream()).code == StatusCode::not_ready);
  CHECK(ones(memory, 4) == 0);
  host->release();
  seam.synchronize();
  CHECK(ones(memory, 4) == 4);
}

TEST_CASE("A step runs exactly the number of operations asked for", "[device][host-only]") {
  const auto [host, seam, memory, executable] = HeldFills(10);
  CHECK(host->step(3) == 3);
  CHECK(ones(memory, 10) == 3);
  CHECK(host->step() == 1);
  CHECK(ones(memory, 10) == 4);
  CHECK(host->step(100) == 6);
  CHECK(ones(memory, 10) == 10);
  CHECK(host->step() == 0);
  CHECK(host->query_stream(seam.stream()).ok());
  host->release();
}

TEST_CASE("Draining a held host device runs all that is queued", "[device][host-only]") {
  const auto [host, seam, memory, executable] = HeldFills(10);
  host->drain();
  CHECK(ones(memory, 10) == 10);
}

TEST_CASE("The serial order is the order of submission", "[device][host-only]") {
  const auto host = make_host_device();
  Seam seam(host);
  const UniqueStream other = seam.another_stream();
  const PinnedMemory memory = seam.pinned(8);
  host->hold();
  for (std::uint64_t i = 0; i < 8; ++i) {
    REQUIRE(host->fill(i % 2 == 0 ? seam.stream() : other.get(), {memory.device + i, 1, 1}).ok());
  }
  for (std::size_t i = 0; i < 8; ++i) {
    CHECK(memory.host[i] == std::byte{0});
    REQUIRE(host->step() == 1);
    CHECK(memory.host[i] == std::byte{1});
  }
  host->release();
}

TEST_CASE("The shuffled order mixes streams and graphs and follows its seed", "[device][host-only]") {
  const auto order_of = [](std::uint64_t seed) {
    const auto host = make_host_device({.shuffled = true, .seed = seed});
    Seam seam(host);
    const UniqueStream other = seam.another_stream();
    const PinnedMemory memory = seam.pinned(16);
    const UniqueExecutable first = seam.instantiate(independent_fills(seam, memory.device, 8));
    const UniqueExecutable second = seam.instantiate(independent_fills(seam, memory.device + 8, 8));
    host->hold();
    REQUIRE(host->launch(first.get(), seam.stream()).ok());
    REQUIRE(host->launch(second.get(), other.get()).ok());
    std::vector<std::size_t> order;
    for (int i = 0; i < 16; ++i) {
      const std::vector<std::byte> before(memory.host, memory.host + 16);
      REQUIRE(host->step() == 1);
      const auto changed = std::mismatch(before.begin(), before.end(), memory.host).first;
      order.push_back(static_cast<std::size_t>(changed - before.begin()));
    }
    host->release();
    return order;
  };
  const std::vector<std::size_t> order = order_of(1);
  CHECK(order == order_of(1));
  CHECK(order != order_of(2));
  // The graphs interleave: neither runs as a whole before the other.
  const auto is_first = [](std::size_t node) { return node < 8; };
  CHECK_FALSE(std::all_of(order.begin(), order.begin() + 8, is_first));
  CHECK_FALSE(std::none_of(order.begin(), order.begin() + 8, is_first));
}

TEST_CASE("Every shuffled order gives the trace of the serial order", "[device][host-only]") {
  for (std::uint64_t program_seed = 1; program_seed <= 10; ++program_seed) {
    const DigestProgram program(program_seed);
    const std::vector<std::int64_t> serial = run_on_host(program, {});
    for (std::uint64_t seed = 0; seed < 8; ++seed) {
      INFO("program " << program_seed << " order " << seed);
      REQUIRE(run_on_host(program, {.shuffled = true, .seed = seed}) == serial);
    }
  }
}

TEST_CASE("A dropped edge is found by some shuffled order", "[device][host-only]") {
  // Two nodes write what a third reads; the edge from either is needed.
  const auto run = [](std::shared_ptr<DeviceApi> device) {
    Seam seam(std::move(device));
    const SeamKernel digest_kernel = seam.kernel(digest_spec());
    const DeviceAddress bytes = seam.memory_of(Bytes(2, 0));
    const DeviceAddress word = seam.memory_of(std::vector<std::int64_t>{0});
    const UniqueGraph graph = seam.graph();
    const NodeHandle left = seam.add(graph, FillNode{bytes, 1, 1});
    const NodeHandle right = seam.add(graph, FillNode{bytes + 1, 1, 2});
    seam.add(graph, digest_kernel.node({1}, bytes, word, std::uint64_t{2}, std::uint64_t{0}), {left, right});
    seam.run(graph);
    return seam.values<std::int64_t>(word, 1).front();
  };
  const std::int64_t expected = digest_of(Bytes{1, 2}, 0, 0);
  for (std::uint64_t edge = 0; edge < 2; ++edge) {
    int found = 0;
    for (std::uint64_t seed = 0; seed < 32; ++seed) {
      const auto host = make_host_device({.shuffled = true, .seed = seed});
      REQUIRE(run(host) == expected);
      found += run(std::make_shared<EdgeDroppingDevice>(host, edge)) == expected ? 0 : 1;
    }
    INFO("edge " << edge);
    CHECK(found > 0);
    CHECK(found < 32);
  }
}

TEST_CASE("A missing event wait is found by some shuffled order", "[device][host-only]") {
  const auto run = [](std::uint64_t seed, bool waits) {
    const auto host = make_host_device({.shuffled = true, .seed = seed});
    Seam seam(host);
    const UniqueStream other = seam.another_stream();
    const PinnedMemory memory = seam.pinned(2);
    EventHandle event{};
    check(host->create_event(event), "create an event");
    host->hold();
    check(host->fill(seam.stream(), {memory.device, 1, 7}), "fill");
    check(host->record_event(event, seam.stream()), "record");
    if (waits) check(host->wait_event(other.get(), event), "wait");
    check(host->copy(other.get(), {memory.device + 1, memory.device, 1}), "copy");
    host->drain();
    check(host->destroy_event(event), "destroy an event");
    return memory.host[1] == std::byte{7};
  };
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    REQUIRE(run(seed, true));
    wrong += run(seed, false) ? 0 : 1;
  }
  CHECK(wrong > 0);
  CHECK(wrong < 32);
}

TEST_CASE("A second run of an executable waits for the first on any stream", "[device][host-only]") {
  const auto host = make_host_device({.shuffled = true, .seed = 3});
  Seam seam(host);
  const UniqueStream other = seam.another_stream();
  const SeamKernel increment_kernel = seam.kernel(increment_spec());
  const PinnedMemory word = seam.pinned(4);
  const UniqueGraph graph = seam.graph();
  const NodeHandle fill = seam.add(graph, FillNode{word.device, 4, 0});
  seam.add(graph, increment_kernel.node({1}, word.device, std::uint32_t{1}), {fill});
  const UniqueExecutable executable = seam.instantiate(graph);
  host->hold();
  REQUIRE(host->launch(executable.get(), seam.stream()).ok());
  REQUIRE(host->launch(executable.get(), other.get()).ok());
  REQUIRE(host->step(2) == 2);
  CHECK(word.host[0] == std::byte{1});
  CHECK(host->query_stream(seam.stream()).ok());
  CHECK(host->query_stream(other.get()).code == StatusCode::not_ready);
  REQUIRE(host->step() == 1);
  CHECK(word.host[0] == std::byte{0});
  host->release();
}

TEST_CASE("Threads that share a host device each see their own work", "[device][host-only]") {
  const auto host = make_host_device({.shuffled = true, .seed = 9});
  std::array<std::uint32_t, 4> results{};
  std::vector<std::thread> threads;
  for (std::uint32_t& result : results) {
    threads.emplace_back([&host, &result] {
      Seam seam(host);
      const SeamKernel increment_kernel = seam.kernel(increment_spec());
      const DeviceAddress word = seam.memory_of(std::vector<std::uint32_t>{0});
      const UniqueGraph graph = seam.graph();
      seam.add(graph, increment_kernel.node({1}, word, std::uint32_t{1}));
      const UniqueExecutable executable = seam.instantiate(graph);
      for (int i = 0; i < 100; ++i) check(host->launch(executable.get(), seam.stream()), "launch");
      result = seam.values<std::uint32_t>(word, 1).front();
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(results == std::array<std::uint32_t, 4>{100, 100, 100, 100});
  host->drain();
  CHECK(host->violations().empty());
  CHECK(host->objects() == HostObjects{});
}

}  // namespace weft::test
