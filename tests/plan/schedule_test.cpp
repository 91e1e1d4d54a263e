#include "catch.h"
#include "plan/oracle.h"
#include "plan/reduction.h"
#include <weft/plan/schedule.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

using namespace weft;
using namespace weft::test;

namespace {

/// Three commands of which each rewrites the range of the one before, and one that has to do with none of them.
std::vector<CommandUses> chain_and_another() {
  return {uses({{0, 0, 8, kWrite}}), uses({{0, 0, 8, kBoth}}), uses({{0, 0, 8, kBoth}}), uses({{1, 0, 8, kWrite}})};
}

/// Random commands on `lanes` ranges of 8 bytes: each rewrites its lane and reads some others, so no more than `lanes`
/// of them are ever unordered.
std::vector<CommandUses> lane_program(std::uint32_t commands, std::uint32_t lanes, std::uint32_t seed) {
  std::mt19937 random(seed);
  const auto lane_bytes = [](std::uint32_t lane, Access access) {
    return ByteUse{0, lane * 8ULL, lane * 8ULL + 8, access};
  };
  std::vector<CommandUses> program(commands);
  for (CommandUses& command : program) {
    command.uses.push_back(lane_bytes(static_cast<std::uint32_t>(random()) % lanes, kBoth));
    for (auto reads = random() % 3; reads > 0; --reads) {
      command.uses.push_back(lane_bytes(static_cast<std::uint32_t>(random()) % lanes, kRead));
    }
  }
  return program;
}

/// Every command writes a byte of its own and reads those of three others from anywhere before it: wide, and full of
/// long edges.
std::vector<CommandUses> wide_program(std::uint32_t commands, std::uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<CommandUses> program(commands);
  for (std::uint32_t i = 0; i < commands; ++i) {
    program[i].uses.push_back({0, i, i + 1ULL, kWrite});
    for (int reads = 0; i > 0 && reads < 3; ++reads) {
      const std::uint64_t byte = random() % i;
      program[i].uses.push_back({0, byte, byte + 1, kRead});
    }
  }
  return program;
}

std::vector<Pair> pairs_of(const Predecessors& predecessors) {
  std::vector<Pair> pairs;
  for (std::uint32_t to = 0; to < predecessors.size(); ++to) {
    for (const std::uint32_t from : predecessors[to]) pairs.emplace_back(from, to);
  }
  return pairs;
}

constexpr std::uint64_t kNoLimit = std::numeric_limits<std::uint64_t>::max();

}  // namespace

TEST_CASE("Random programs are ordered exactly as brute force asks", "[plan][R9][T23]") {
  constexpr std::uint32_t kSeed = 7321;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  std::size_t pairs = 0;
  std::size_t required = 0;
  std::size_t implied = 0;
  for (int program = 0; program < 1000; ++program) {
    const std::vector<CommandUses> commands = random_program(random, 48);
    const Schedule planned = schedule(commands);
    const std::vector<Pair> edges = edges_of(planned);
    INFO("program " << program);
    REQUIRE(find_fault(commands, edges).value_or("none") == "none");
    REQUIRE(planned.redundant_edges == 0);
    const std::size_t asked = required_orders(commands).count();
    pairs += commands.size() * (commands.size() - 1) / 2;
    required += asked;
    implied += asked - edges.size();
  }
  const double density = static_cast<double>(required) / static_cast<double>(pairs);
  INFO("conflict density " << density << ", " << implied << " of " << required << " orders implied by others");
  CHECK(density > 0.15);
  CHECK(density < 0.85);
  CHECK(implied > required / 4);
}

TEST_CASE("Dropping any edge of random programs is found", "[plan][T23]") {
  constexpr std::uint32_t kSeed = 90125;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  std::size_t dropped = 0;
  for (int program = 0; program < 1000; ++program) {
    const std::vector<CommandUses> commands = random_program(random, 48);
    const std::vector<Pair> edges = edges_of(schedule(commands));
    for (std::size_t victim = 0; victim < edges.size(); ++victim) {
      std::vector<Pair> rest = edges;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(victim));
      INFO("program " << program << " edge " << victim);
      REQUIRE(contains(find_fault(commands, rest).value_or("none"), "no path joins"));
      ++dropped;
    }
  }
  CHECK(dropped > 5000);
}

TEST_CASE("The oracle finds an implied edge and an edge that nothing asks for", "[plan][T23]") {
  const std::vector<CommandUses> commands = chain_and_another();
  const std::vector<Pair> right{{0, 1}, {1, 2}};
  CHECK_FALSE(find_fault(commands, right));
  CHECK(find_fault(commands, std::vector<Pair>{{0, 1}, {0, 2}, {1, 2}}) == "others imply 0 -> 2");
  CHECK(find_fault(commands, std::vector<Pair>{{0, 1}, {1, 2}, {2, 3}}) == "nothing asks for 2 -> 3");
}

TEST_CASE("Every edge keeps all its reasons", "[plan][T23]") {
  constexpr std::uint32_t kSeed = 411;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  std::size_t edges = 0;
  for (int program = 0; program < 200; ++program) {
    const std::vector<CommandUses> commands = random_program(random, 32);
    const Schedule planned = schedule(commands);
    for (const ScheduleEdge& edge : planned.edges) {
      const std::vector<std::uint32_t>& after = commands[edge.to].after;
      const bool stated = std::find(after.begin(), after.end(), edge.from) != after.end();
      const std::span<const Reason> kept = planned.reasons_of(edge);
      INFO("program " << program << " edge " << edge.from << " -> " << edge.to);
      REQUIRE(std::vector<Reason>(kept.begin(), kept.end()) ==
              byte_reasons(commands[edge.from], commands[edge.to], stated, 32));
      ++edges;
    }
  }
  CHECK(edges > 1000);
}

TEST_CASE("Rewrites of one range give a chain of single edges", "[plan][R9][B9][T23]") {
  for (const std::uint32_t count : {128U, 256U, 512U, 1024U, 2048U}) {
    const std::vector<CommandUses> commands(count, uses({{0, 0, 4096, kBoth}}));
    const Schedule planned = schedule(commands);
    INFO(count << " rewrites");
    REQUIRE(planned.edges.size() == count - 1);
    for (const ScheduleEdge& edge : planned.edges) REQUIRE(edge.to == edge.from + 1);
    CHECK(planned.steps <= 4 * count);
  }
}

TEST_CASE("A writer waits for all readers and they do not wait for one another", "[plan][R9]") {
  constexpr std::uint32_t kReaders = 500;
  std::vector<CommandUses> commands{uses({{0, 0, 64, kWrite}})};
  commands.insert(commands.end(), kReaders, uses({{0, 0, 64, kRead}}));
  commands.push_back(uses({{0, 0, 64, kWrite}}));
  const Schedule planned = schedule(commands);
  CHECK(planned.edges.size() == 2 * kReaders);
  CHECK(planned.edges_into(kReaders + 1).size() == kReaders);
  CHECK(planned.sources() == std::vector<std::uint32_t>{0});
  CHECK(planned.sinks() == std::vector<std::uint32_t>{kReaders + 1});
}

TEST_CASE("Thousands of disjoint ranges of one allocation stay unordered", "[plan][R9]") {
  constexpr std::uint32_t kRanges = 4000;
  std::vector<CommandUses> commands;
  for (std::uint64_t i = 0; i < kRanges; ++i) commands.push_back(uses({{0, i * 256, i * 256 + 256, kWrite}}));
  CHECK(schedule(commands).edges.empty());
  for (std::uint64_t i = 0; i < kRanges; ++i) commands.push_back(uses({{0, i * 256, i * 256 + 256, kRead}}));
  const Schedule planned = schedule(commands);
  REQUIRE(planned.edges.size() == kRanges);
  CHECK(std::all_of(planned.edges.begin(), planned.edges.end(),
                    [](const ScheduleEdge& edge) { return edge.to == edge.from + kRanges; }));
}

TEST_CASE("A stated order that hazards imply adds no edge", "[plan]") {
  std::vector<CommandUses> commands = chain_and_another();
  commands[2].after = {0, 1};
  commands[3].after = {1};
  const Schedule planned = schedule(commands);
  CHECK(edges_of(planned) == std::vector<Pair>{{0, 1}, {1, 2}, {1, 3}});
  const auto kinds = [&](std::size_t edge) {
    std::vector<HazardKind> list;
    for (const Reason& reason : planned.reasons_of(planned.edges[edge])) list.push_back(reason.kind);
    return list;
  };
  using enum HazardKind;
  CHECK(kinds(1) == std::vector{read_after_write, write_after_read, write_after_write, stated});
  CHECK(kinds(2) == std::vector{stated});
}

TEST_CASE("Serial order is a chain that keeps the real reasons", "[plan]") {
  std::vector<CommandUses> commands{uses({{0, 0, 8, kWrite}}), uses({{0, 4, 8, kRead}}), uses({{1, 0, 8, kRead}}),
                                    uses({})};
  commands[3].after = {2};
  const Schedule planned = schedule(commands, Order::serial);
  CHECK(planned.order == Order::serial);
  REQUIRE(edges_of(planned) == std::vector<Pair>{{0, 1}, {1, 2}, {2, 3}});
  REQUIRE(planned.reasons.size() == 3);
  CHECK(planned.reasons_of(planned.edges[0])[0] == Reason{HazardKind::read_after_write, 0, 4, 8});
  CHECK(planned.reasons_of(planned.edges[1])[0] == Reason{HazardKind::serial, kNoAllocation, 0, 0});
  CHECK(planned.reasons_of(planned.edges[2])[0] == Reason{HazardKind::stated, kNoAllocation, 0, 0});
  commands[0].after = {0};
  CHECK(refusal([&] { static_cast<void>(schedule(commands, Order::serial)); }).code() == ErrorCode::invalid);
}

TEST_CASE("A list without commands has no edges", "[plan]") {
  for (const Order order : {Order::parallel, Order::serial}) {
    const Schedule planned = schedule({}, order);
    CHECK(planned.edges.empty());
    CHECK(planned.sources().empty());
    CHECK(planned.sinks().empty());
  }
}

TEST_CASE("The only sink has every other command as an ancestor", "[plan]") {
  constexpr std::uint32_t kSeed = 5150;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  std::size_t only = 0;
  for (int program = 0; program < 300; ++program) {
    const std::vector<CommandUses> commands = random_program(random, 24);
    const Schedule planned = schedule(commands);
    const Relation reached = closure(commands.size(), edges_of(planned));
    for (std::uint32_t command = 0; command < commands.size(); ++command) {
      bool all = true;
      for (std::size_t other = 0; other < commands.size(); ++other)
        all &= other == command || reached.holds(other, command);
      REQUIRE(planned.is_only_sink(command) == all);
      only += all ? 1U : 0U;
    }
  }
  CHECK(only > 10);
  CHECK(only < 300);
}

TEST_CASE("Edges are sorted and the same every time", "[plan]") {
  const std::vector<CommandUses> commands = lane_program(2000, 24, 99);
  const Schedule first = schedule(commands);
  const Schedule second = schedule(commands);
  CHECK(first.edges == second.edges);
  CHECK(first.reasons == second.reasons);
  CHECK(first.steps == second.steps);
  CHECK(std::is_sorted(first.edges.begin(), first.edges.end(), [](const ScheduleEdge& a, const ScheduleEdge& b) {
    return std::pair(a.to, a.from) < std::pair(b.to, b.from);
  }));
}

TEST_CASE("More than 10000 commands of width 64 are reduced exactly", "[plan][R9][big]") {
  constexpr std::uint32_t kCommands = 12'000;
  const std::vector<CommandUses> commands = lane_program(kCommands, 64, 1984);
  const Schedule planned = schedule(commands);
  CHECK(planned.redundant_edges == 0);
  CHECK(edges_of(planned) == exact_edges(commands, 1, 64 * 8));
}

TEST_CASE("A hostile wide program is reduced exactly", "[plan][big]") {
  for (const std::uint32_t count : {3'000U, 11'000U}) {
    const std::vector<CommandUses> commands = wide_program(count, 2112);
    const Schedule planned = schedule(commands);
    INFO(count << " commands");
    CHECK(planned.redundant_edges == 0);
    CHECK(edges_of(planned) == exact_edges(commands, 1, count));
  }
}

TEST_CASE("Each way to decide a pair gives the exact reduction", "[plan]") {
  const bool lanes = GENERATE(true, false);
  constexpr std::uint32_t kCommands = 2'000;
  const std::vector<CommandUses> commands = lanes ? lane_program(kCommands, 48, 31) : wide_program(kCommands, 32);
  const std::vector<Pair> expected = exact_edges(commands, 1, lanes ? 48 * 8 : kCommands);
  const Predecessors inferred = infer(commands);
  REQUIRE(pairs_of(inferred).size() > expected.size());
  INFO((lanes ? "lanes" : "wide"));
  SECTION("By the table of chains alone") {
    const Reduction reduction = reduce(
        inferred,
        {.exact_commands = 0, .cheap_words = 0, .chain_entries = std::size_t{kCommands} * kCommands, .batch_words = 0});
    CHECK(reduction.unproven == 0);
    CHECK(pairs_of(reduction.kept) == expected);
  }
  SECTION("By the batched test alone") {
    const Reduction reduction =
        reduce(inferred, {.exact_commands = 0, .cheap_words = 0, .chain_entries = 0, .batch_words = kNoLimit});
    CHECK(reduction.unproven == 0);
    CHECK(pairs_of(reduction.kept) == expected);
  }
}

TEST_CASE("An edge that nothing decides is kept and counted", "[plan]") {
  constexpr std::uint32_t kCommands = 3'000;
  const std::vector<CommandUses> commands = wide_program(kCommands, 77);
  const std::vector<Pair> needed = exact_edges(commands, 1, kCommands);
  const Predecessors inferred = infer(commands);
  const std::uint64_t one_batch = 8 * inferred.commands.size();
  const Reduction reduction =
      reduce(inferred, {.exact_commands = 0, .cheap_words = 0, .chain_entries = 0, .batch_words = one_batch});
  const std::vector<Pair> kept = pairs_of(reduction.kept);
  CHECK(std::includes(kept.begin(), kept.end(), needed.begin(), needed.end(), [](const Pair& a, const Pair& b) {
    return std::pair(a.second, a.first) < std::pair(b.second, b.first);
  }));
  CHECK(kept.size() > needed.size());
  CHECK(kept.size() - needed.size() <= reduction.unproven);
  CHECK(reduction.unproven < kept.size());
}

TEST_CASE("Greedy chains stay as few as a program of lanes is wide", "[plan]") {
  // A table with more than `lanes` entries for a command would be refused and leave pairs undecided.
  constexpr std::uint32_t kCommands = 4'000;
  constexpr std::uint32_t kLanes = 64;
  const std::vector<CommandUses> commands = lane_program(kCommands, kLanes, 5);
  const Reduction reduction = reduce(
      infer(commands),
      {.exact_commands = 0, .cheap_words = 0, .chain_entries = std::size_t{kCommands} * kLanes, .batch_words = 0});
  CHECK(reduction.unproven == 0);
}

TEST_CASE("Scheduling looks at a near-linear number of nodes", "[plan][B9]") {
  const auto steps_per_command = [](const std::vector<CommandUses>& commands) {
    return static_cast<double>(schedule(commands).steps) / static_cast<double>(commands.size());
  };
  SECTION("Layers with a residual") {
    const auto layers = [](std::uint32_t count) {
      std::vector<CommandUses> commands;
      for (std::uint32_t i = 0; i < count; ++i) {
        const std::uint32_t in = i % 3;
        commands.push_back(uses({{3, 0, 4096, kRead},
                                 {in, 0, 4096, kRead},
                                 {(i + 1) % 3, 0, 4096, kRead},
                                 {(i + 2) % 3, 0, 4096, kWrite}}));
      }
      return commands;
    };
    const double small = steps_per_command(layers(1'000));
    CHECK(steps_per_command(layers(16'000)) < 1.5 * small);
    CHECK(small < 50);
  }
  SECTION("Lanes that read one another") {
    const double small = steps_per_command(lane_program(1'500, 16, 8));
    CHECK(steps_per_command(lane_program(24'000, 16, 8)) < 2 * small);
  }
}
