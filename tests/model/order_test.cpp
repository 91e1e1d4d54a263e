#include "catch.h"
#include "device/faults.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/limits_device.h"
#include "support/model_fixture.h"
#include <weft/weft.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kMemoryBytes = 64;

/// A byte range of a program's memory.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 1;
};

/// One step of a program: a fill of `to`, or `to` = `from` ^ value with the digest of `from` written into the trace.
struct Step {
  bool is_fill = false;
  Range from;
  Range to;
  std::uint8_t value = 0;
};

struct Answer {
  std::vector<std::uint8_t> memory;
  std::vector<std::int64_t> trace;  ///< What each step read.
  friend bool operator==(const Answer&, const Answer&) = default;
};

std::vector<Step> random_program(std::mt19937& random, std::size_t steps) {
  const auto range = [&](std::uint64_t bytes) { return Range{random() % (kMemoryBytes - bytes + 1), bytes}; };
  std::vector<Step> program;
  while (program.size() < steps) {
    const std::uint64_t bytes = 1 + random() % 24;
    Step step{random() % 4 == 0, range(bytes), range(bytes), static_cast<std::uint8_t>(random())};
    const bool overlap = step.from.begin < step.to.begin + bytes && step.to.begin < step.from.begin + bytes;
    if (step.is_fill || !overlap) program.push_back(step);
  }
  return program;
}

/// What the program computes, step by step.
Answer expected(const std::vector<Step>& program, const std::vector<std::uint8_t>& input) {
  Answer answer{input, std::vector<std::int64_t>(program.size(), 0)};
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Step& step = program[i];
    const std::span<std::uint8_t> to = std::span(answer.memory).subspan(step.to.begin, step.to.bytes);
    if (step.is_fill) {
      std::ranges::fill(to, step.value);
      continue;
    }
    const std::span<const std::uint8_t> from = std::span(answer.memory).subspan(step.from.begin, step.from.bytes);
    answer.trace[i] = digest_of(from, 0, i);
    std::ranges::transform(from, to.begin(),
                           [&](std::uint8_t byte) { return static_cast<std::uint8_t>(byte ^ step.value); });
  }
  return answer;
}

PreparedModel prepare(const std::vector<Step>& program, const PrepareOptions& options) {
  TestSession test;
  const auto memory = test.session.allocate<std::uint8_t>({kMemoryBytes}, {.label = "memory"});
  const auto trace = test.session.allocate<std::int64_t>({program.size()}, {.label = "trace"});
  std::vector<Command> commands{fill(trace, 0)};
  for (std::size_t i = 0; i < program.size(); ++i) {
    const Step& step = program[i];
    const Region from = memory.slice(step.from.begin, step.from.bytes);
    const Region to = memory.slice(step.to.begin, step.to.bytes);
    if (step.is_fill) {
      commands.push_back(fill(to, step.value));
    } else {
      commands.push_back(test.digest(grid(1), from, trace.slice(i * sizeof(std::int64_t), sizeof(std::int64_t)),
                                     from.bytes, std::uint64_t{i}));
      commands.push_back(test.xor_of(from, to, step.value));
    }
  }
  return test.freeze()
      .fragment(trusted, {.inputs = {memory}, .outputs = {memory, trace}, .commands = std::move(commands)})
      .prepare(options);
}

Answer read(const Inference& run) {
  const auto memory = run.output<std::uint8_t>(0);
  const auto trace = run.output<std::int64_t>(1);
  return {{memory.begin(), memory.end()}, {trace.begin(), trace.end()}};
}

/// (from, to) of all edges, as positions in the order in which nodes were added.
using Edges = std::vector<std::pair<std::uint32_t, std::uint32_t>>;

Edges edges_of(const Topology& topology) {
  Edges edges;
  for (const TopologyEdge& edge : topology.edges) edges.emplace_back(edge.from, edge.to);
  std::ranges::sort(edges);
  return edges;
}

/// Keeps what the device tells of the graph that was instantiated last.
class GraphReader final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;

  DeviceStatus create_graph(GraphHandle& graph) noexcept override {
    positions_.clear();
    return DeviceDecorator::create_graph(graph);
  }
  DeviceStatus add_node(GraphHandle graph, const Node& node, std::span<const Edge> edges,
                        NodeHandle& handle) noexcept override {
    const DeviceStatus added = DeviceDecorator::add_node(graph, node, edges, handle);
    positions_.emplace(handle, static_cast<std::uint32_t>(positions_.size()));
    return added;
  }
  DeviceStatus instantiate(GraphHandle graph, ExecutableHandle& executable) noexcept override {
    GraphReadBack read;
    const DeviceStatus status = read_back(graph, read);
    if (!status.ok()) return status;
    edges_.clear();
    for (const auto& edge : read.edges) edges_.emplace_back(positions_.at(edge.from), positions_.at(edge.to));
    std::ranges::sort(edges_);
    return DeviceDecorator::instantiate(graph, executable);
  }

  [[nodiscard]] const Edges& edges() const { return edges_; }

 private:
  std::unordered_map<NodeHandle, std::uint32_t> positions_;
  Edges edges_;
};

/// The answer as it stands when the run says that it is complete, one node after the other. Nothing runs meanwhile, so
/// that a completion that comes too early shows, and is no race.
Answer stepped(HostDevice& device, PreparedModel& prepared, const std::vector<std::uint8_t>& input) {
  device.hold();
  Inference run = submit(prepared, input);
  while (!run.wait(past())) {
    if (device.step() == 0) throw Error(ErrorCode::internal, "The run of the test ended without completing.");
  }
  Answer answer = read(run);
  device.drain();
  return answer;
}

/// Whether any of some seeds and requests shows that edge `edge` is missing.
bool is_noticed(const std::vector<Step>& program, std::uint64_t edge) {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    const std::shared_ptr<HostDevice> host = make_host_device({.shuffled = true, .seed = seed});
    const ScopedDevice scoped(Device::host(), std::make_shared<EdgeDroppingDevice>(host, edge));
    PreparedModel prepared = prepare(program, {});
    for (std::uint32_t request = 0; request < 3; ++request) {
      const std::vector<std::uint8_t> input = fresh_bytes(kMemoryBytes, request);
      if (!(stepped(*host, prepared, input) == expected(program, input))) return true;
    }
  }
  return false;
}

}  // namespace

TEST_CASE("A fill stands between the readers before and behind it as a node or as a kernel", "[model][case7]") {
  constexpr std::uint64_t kFilled = 5 * 1024 + 3;
  constexpr std::uint8_t kValue = 0xa5;
  const bool as_node = GENERATE(true, false);
  INFO((as_node ? "memset node" : "fill kernel"));
  const auto device = std::make_shared<LimitsDevice>(
      open_device(test_device()), [&](DeviceLimits& limits) { limits.fill_nodes_on_pool_memory = as_node; });
  const ScopedDevice scoped(test_device(), device);
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kFilled + 2}, {.label = "x"});
  const auto before = test.session.allocate<std::uint8_t>({kFilled}, {.label = "before"});
  const auto after = test.session.allocate<std::uint8_t>({kFilled}, {.label = "after"});
  const Region range = x.slice(1, kFilled);
  PreparedModel prepared = test.freeze()
                               .fragment(trusted, {.inputs = {x},
                                                   .outputs = {before, after, x},
                                                   .commands = {test.xor_of(range, before, 0).label("reader before"),
                                                                fill(range, kValue).label("fill"),
                                                                test.xor_of(range, after, 0).label("reader behind")}})
                               .prepare();
  CHECK(prepared.node_counts().memset_nodes == (as_node ? 1 : 0));

  const Topology& topology = prepared.topology();
  const auto labelled = [&](const std::string& label) {
    const auto node = std::ranges::find(topology.nodes, label, &TopologyNode::label);
    REQUIRE(node != topology.nodes.end());
    return static_cast<std::uint32_t>(node - topology.nodes.begin());
  };
  const auto has_edge = [&](std::uint32_t from, std::uint32_t to) {
    return std::ranges::any_of(topology.edges,
                               [&](const TopologyEdge& edge) { return edge.from == from && edge.to == to; });
  };
  CHECK(has_edge(labelled("reader before"), labelled("fill")));
  CHECK(has_edge(labelled("fill"), labelled("reader behind")));

  const std::vector<std::uint8_t> input = fresh_bytes(kFilled + 2, 1);
  Inference run = submit(prepared, input);
  REQUIRE(run.wait(in_a_minute()));
  CHECK(std::ranges::equal(run.output<std::uint8_t>(0), std::span(input).subspan(1, kFilled)));
  CHECK(std::ranges::equal(run.output<std::uint8_t>(1), std::vector<std::uint8_t>(kFilled, kValue)));
  const std::span<const std::uint8_t> filled = run.output<std::uint8_t>(2);
  CHECK(filled.front() == input.front());
  CHECK(filled.back() == input.back());
  CHECK(std::ranges::equal(filled.subspan(1, kFilled), std::vector<std::uint8_t>(kFilled, kValue)));
}

TEST_CASE("Random programs give the answers and traces of their list order", "[model]") {
  const auto kept_open = open_device(test_device());  // Opening a GPU takes longer than a program.
  constexpr std::uint32_t kSeed = 21;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  for (int i = 0; i < 25; ++i) {
    const std::vector<Step> program = random_program(random, 1 + random() % 20);
    for (const Order order : {Order::parallel, Order::serial}) {
      PreparedModel prepared = prepare(program, {.slots = 2, .order = order});
      std::vector<std::pair<std::vector<std::uint8_t>, Inference>> runs;
      for (int request = 0; request < 2; ++request) {
        std::vector<std::uint8_t> input = fresh_bytes(kMemoryBytes, random());
        Inference run = submit(prepared, input);
        runs.emplace_back(std::move(input), std::move(run));
      }
      for (auto& [input, run] : runs) {
        REQUIRE(run.wait(in_a_minute()));
        INFO("program " << i << ", " << to_string(order));
        CHECK(read(run) == expected(program, input));
      }
    }
  }
}

TEST_CASE("Random programs give the same answers and traces in every legal order", "[model][host-only]") {
  constexpr std::uint32_t kSeed = 22;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  for (int i = 0; i < 25; ++i) {
    const std::vector<Step> program = random_program(random, 1 + random() % 20);
    const std::vector<std::uint8_t> input = fresh_bytes(kMemoryBytes, random());
    for (std::uint64_t seed = 0; seed < 4; ++seed) {
      INFO("program " << i << ", order " << seed);
      const std::shared_ptr<HostDevice> host = make_host_device({.shuffled = true, .seed = seed});
      const ScopedDevice scoped(Device::host(), host);
      PreparedModel prepared = prepare(program, {});
      CHECK(stepped(*host, prepared, input) == expected(program, input));
      CHECK(host->violations().empty());
    }
  }
}

TEST_CASE("The device's graph has the edges of the plan and one less shows", "[model]") {
  const auto kept_open = open_device(test_device());  // As above.
  constexpr std::uint32_t kSeed = 23;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  std::uint64_t dropped = 0;
  for (int i = 0; i < 12; ++i) {
    const std::vector<Step> program = random_program(random, 1 + random() % 16);
    std::uint64_t edges = 1;
    for (std::uint64_t victim = 0; victim <= edges; ++victim) {  // The last one drops none.
      const auto dropping = std::make_shared<EdgeDroppingDevice>(kept_open, victim);
      const auto reader = std::make_shared<GraphReader>(dropping);
      const ScopedDevice scoped(test_device(), reader);
      const Edges planned = edges_of(prepare(program, {}).topology());
      edges = dropping->edges();
      INFO("program " << i << ", edge " << victim << " of " << edges);
      REQUIRE(planned.size() == edges);
      REQUIRE(std::ranges::includes(planned, reader->edges()));
      REQUIRE(reader->edges().size() == (victim < edges ? edges - 1 : edges));
      dropped += victim < edges ? 1 : 0;
    }
  }
  CHECK(dropped > 100);
}

TEST_CASE("Every edge of a model's graph is noticed when it is missing", "[model][host-only]") {
  // Reads after writes, writes after reads and after writes, a fill among them, and two outputs with the completion
  // behind both.
  const std::vector<Step> program{{false, {0, 16}, {16, 16}, 1}, {false, {16, 16}, {32, 16}, 2}, {true, {}, {16, 8}, 3},
                                  {false, {40, 8}, {0, 8}, 4},   {false, {0, 24}, {40, 24}, 5},  {true, {}, {0, 4}, 6}};
  const auto counting = std::make_shared<EdgeDroppingDevice>(make_host_device(), ~std::uint64_t{0});
  {
    const ScopedDevice scoped(Device::host(), counting);
    static_cast<void>(prepare(program, {}));
  }
  REQUIRE(counting->edges() > 12);
  CHECK(!is_noticed(program, counting->edges()));
  for (std::uint64_t edge = 0; edge < counting->edges(); ++edge) {
    INFO("edge " << edge << " of " << counting->edges());
    CHECK(is_noticed(program, edge));
  }
}

}  // namespace weft::test
