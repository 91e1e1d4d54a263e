#include "catch.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "graph_state.h"
#include "support/device.h"
#include "support/model_state.h"
#include "support/requests.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

// Private scratch that fragments of one graph take turns with.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

/// out = value, by way of `temp`.
ModelFragment filler(const Context& context, std::uint8_t value, std::uint64_t temp_bytes = kCount) {
  TestSession test(context);
  const auto temp = test.session.allocate<std::uint8_t>({temp_bytes}, {.label = "temp"});
  const auto out = test.session.allocate<std::uint8_t>({kCount}, {.label = "out"});
  return test.freeze()
      .fragment(trusted, {.outputs = {out},
                          .commands = {fill(temp, value), test.xor_of(temp.slice(0, kCount), out, 0).label("copy")},
                          .label = "filler"})
      .reuse_private_scratch(trusted);
}

/// A fragment whose private scratch has these sizes.
struct Request {
  std::uint64_t bytes = 0;
  Placement placement = Placement::device;
};

ModelFragment scratch_of(const Context& context, const std::vector<Request>& requests, std::uint8_t value) {
  TestSession test(context);
  std::vector<Command> commands;
  for (const Request& request : requests)
    commands.push_back(fill(test.session.allocate(request.bytes, {.placement = request.placement}), value));
  return test.freeze().fragment(trusted, {.commands = std::move(commands)}).reuse_private_scratch(trusted);
}

}  // namespace

TEST_CASE("Two fragments that share scratch keep their outputs apart over repeats",
          "[model][reuse][S66][S67][S69][T1][arena]") {
  const Context context = Context::open(test_device());
  const std::vector<ModelFragment> fragments{filler(context, 0x11), filler(context, 0x22)};
  const MemoryStatistics before = context.memory();
  PreparedModel pool = PreparedModel::prepare(context,
                                              [&](Context& home) {
                                                Graph graph(home, "shared");
                                                std::vector<DeviceTensor> outputs;
                                                for (const ModelFragment& fragment : fragments)
                                                  outputs.push_back(fragment.record(graph, {}).front());
                                                return InferenceGraph{std::move(graph), {}, std::move(outputs)};
                                              },
                                              {.slots = 2});
  const MemoryStatistics now = context.memory();
  CHECK(now.requested.allocations - before.requested.allocations == 6);
  CHECK(now.requested.live_bytes - before.requested.live_bytes == 6 * kCount);
  CHECK(now.reserved.allocations - before.reserved.allocations == 2);
  for (int round = 0; round < 10; ++round) {
    Inference first = pool.acquire(in_a_minute()).value().submit();
    Inference second = pool.acquire(in_a_minute()).value().submit();
    for (Inference* run : {&second, &first}) {
      REQUIRE(run->wait(in_a_minute()));
      CHECK(std::ranges::count(run->output<std::uint8_t>(1), 0x22) == kCount);
      CHECK(std::ranges::count(run->output<std::uint8_t>(0), 0x11) == kCount);
    }
  }
}

TEST_CASE("Edges of reused scratch say so in text and JSON", "[model][reuse][S70]") {
  const Context context = Context::open(test_device());
  const std::vector<ModelFragment> fragments{filler(context, 1), filler(context, 2)};
  const auto prepare = [&](std::size_t count) {
    return PreparedModel::prepare(context, [&](Context& home) {
      Graph graph(home, "g");
      std::vector<DeviceTensor> outputs;
      for (std::size_t i = 0; i < count; ++i) outputs.push_back(fragments[i].record(graph, {}).front());
      return InferenceGraph{std::move(graph), {}, std::move(outputs)};
    });
  };
  const PreparedModel alone = prepare(1);
  CHECK(alone.topology().allocations[0].kind == AllocationKind::scratch);
  CHECK(!contains(to_text(alone.topology()), "reused"));
  const PreparedModel shared = prepare(2);
  CHECK(shared.topology().allocations[0].kind == AllocationKind::reused);
  const std::string text = to_text(shared.topology());
  CHECK(contains(text, "a0 reused \"temp\" 64 bytes at 0"));
  CHECK(contains(text, "<- n1 [war reused \"temp\" 0..64]"));
  const nlohmann::json json = nlohmann::json::parse(to_json(shared.topology()));
  CHECK(json.at("allocations").at(0).at("kind") == "reused");
}

TEST_CASE("Branches that share scratch are ordered and otherwise are not", "[model][reuse][S70]") {
  const auto edges_between = [](bool reuses) {
    const Context context = Context::open(test_device());
    TestSession test(context);
    const auto h = test.session.allocate<std::uint8_t>({kCount}, {.label = "h"});
    const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
    ModelFragment fragment =
        test.freeze().fragment(trusted, {.outputs = {y}, .commands = {fill(h, 1), test.xor_of(h, y, 2)}});
    if (reuses) fragment = fragment.reuse_private_scratch(trusted);
    const PreparedModel pool = PreparedModel::prepare(context, [&](Context& home) {
      Graph graph(home);
      std::vector<DeviceTensor> outputs = fragment.record(graph, {});
      std::ranges::copy(fragment.record(graph, {}), std::back_inserter(outputs));
      return InferenceGraph{std::move(graph), {}, std::move(outputs)};
    });
    return std::ranges::count_if(pool.topology().edges, [](const TopologyEdge& edge) {
      return edge.from < 2 && (edge.to == 2 || edge.to == 3);
    });
  };
  CHECK(edges_between(false) == 0);
  CHECK(edges_between(true) == 1);
}

TEST_CASE("A fragment without the flag neither takes nor gives scratch", "[model][reuse][S66]") {
  const Context context = Context::open(test_device());
  TestSession test(context);
  const Region h = test.session.allocate(kCount);
  const ModelFragment plain = test.freeze().fragment(trusted, {.commands = {fill(h, 1)}});
  const ModelFragment sharing = plain.reuse_private_scratch(trusted);
  Graph graph(context);
  const GraphState& state = GraphAccess::state(graph);
  static_cast<void>(plain.record(graph, {}));
  CHECK(state.scratch_pool.empty());
  static_cast<void>(sharing.record(graph, {}));
  static_cast<void>(plain.record(graph, {}));
  static_cast<void>(sharing.reuse_private_scratch(trusted).record(graph, {}));
  CHECK(state.scratch_pool == std::vector<std::uint32_t>{1});
  CHECK(state.allocations.size() == 3);
  CHECK(state.allocations[1].users == 2);
}

TEST_CASE("Scratch in whose allocation an input or output lies is not shared", "[model][reuse][S67]") {
  const Context context = Context::open(test_device());
  TestSession test(context);
  const auto w = test.weight(fresh_bytes(8, 1));
  const Region with_input = test.session.allocate(2 * kCount, {.label = "with input"});
  const Region with_output = test.session.allocate(2 * kCount, {.label = "with output"});
  const Region private_one = test.session.allocate(kCount, {.label = "private"});
  const Region unused = test.session.allocate(kCount, {.label = "unused"});
  const TypedRegion<std::uint8_t> x{with_input.slice(0, 8), bytes_desc(8)};
  const TypedRegion<std::uint8_t> y{with_output.slice(0, 8), bytes_desc(8)};
  const ModelFragment fragment =
      test.freeze()
          .fragment(trusted, {.inputs = {x},
                              .outputs = {y},
                              .commands = {test.xor_of(w, private_one.slice(0, 8), 1),
                                           fill(with_output.slice(kCount, 8), 1), test.xor_of(x, y, 1)}})
          .reuse_private_scratch(trusted);
  CHECK(unused.bytes == kCount);
  Graph graph(context);
  const DeviceTensor input = graph.tensor(x.desc);
  static_cast<void>(fragment.record(graph, {input}));
  static_cast<void>(fragment.record(graph, {input}));
  const GraphState& state = GraphAccess::state(graph);
  REQUIRE(state.scratch_pool.size() == 1);
  const Allocation& pooled = state.allocations[state.scratch_pool[0]];
  CHECK(pooled.label == "private");
  CHECK(pooled.bytes == 8);
  CHECK(pooled.users == 2);
  CHECK(std::ranges::count(state.allocations, std::string("with output"), &Allocation::label) == 2);
}

TEST_CASE("Shared placement is kept under reuse and the two kinds are not mixed", "[model][reuse][S68][B12][arena]") {
  const Context context = Context::open(test_device());
  const ModelFragment shared = scratch_of(context, {{kCount, Placement::shared}}, 1);
  const ModelFragment device = scratch_of(context, {{kCount, Placement::device}}, 2);
  const MemoryStatistics before = context.memory();
  const PreparedModel pool = PreparedModel::prepare(context, [&](Context& home) {
    Graph graph(home);
    for (const ModelFragment* fragment : {&shared, &device, &shared, &device})
      static_cast<void>(fragment->record(graph, {}));
    return InferenceGraph{std::move(graph), {}, {}};
  });
  const MemoryStatistics now = context.memory();
  CHECK(now.requested.live_bytes - before.requested.live_bytes == 2 * kCount);
  CHECK(now.reserved.live_bytes - before.reserved.live_bytes == 256 + 256);  // The scratch, and counters of weft's own.
  CHECK(now.staging.live_bytes - before.staging.live_bytes == 256 + 128);    // The scratch, and the completion word.
}

TEST_CASE("The smallest entry that is large enough is taken and the first of equals", "[model][reuse][S68]") {
  constexpr std::uint32_t kSeed = 31;
  INFO("seed " << kSeed);
  std::mt19937 random(kSeed);
  const Context context = Context::open(test_device());
  struct Entry {
    std::uint64_t bytes = 0;
    Placement placement = Placement::device;
    std::uint32_t allocation = 0;
  };
  std::size_t reused = 0;
  for (int round = 0; round < 60; ++round) {
    INFO("round " << round);
    Graph graph(context);
    const GraphState& state = GraphAccess::state(graph);
    std::vector<Entry> model;
    for (std::uint32_t fragment = 0; fragment < 6; ++fragment) {
      std::vector<Request> requests(random() % 5);
      for (Request& request : requests)
        request = {1 + random() % 6, random() % 3 == 0 ? Placement::shared : Placement::device};
      const std::size_t first = state.operations.size();
      static_cast<void>(scratch_of(context, requests, 1).record(graph, {}));
      REQUIRE(state.operations.size() == first + requests.size());

      std::set<std::uint32_t> taken;
      const std::size_t known = model.size();
      auto allocations = static_cast<std::uint32_t>(0);
      for (const Entry& entry : model) allocations = std::max(allocations, entry.allocation + 1);
      for (std::size_t i = 0; i < requests.size(); ++i) {
        const Entry* best = nullptr;
        for (std::size_t entry = 0; entry < known; ++entry) {
          const Entry& candidate = model[entry];
          if (candidate.placement != requests[i].placement || candidate.bytes < requests[i].bytes ||
              taken.contains(candidate.allocation))
            continue;
          if (best == nullptr || candidate.bytes < best->bytes) best = &candidate;
        }
        std::uint32_t expected = allocations;
        if (best != nullptr) {
          expected = best->allocation;
          ++reused;
        } else {
          model.push_back({requests[i].bytes, requests[i].placement, allocations++});
        }
        taken.insert(expected);
        const auto& operation = std::get<FillOperation>(state.operations[first + i].action);
        CHECK(operation.destination == Location{expected, 0});
        CHECK(operation.bytes == requests[i].bytes);
      }
    }
    REQUIRE(state.scratch_pool.size() == model.size());
    for (std::size_t i = 0; i < model.size(); ++i) {
      CHECK(state.scratch_pool[i] == model[i].allocation);
      CHECK(state.allocations[model[i].allocation].bytes == model[i].bytes);
      CHECK(state.allocations[model[i].allocation].placement == model[i].placement);
    }
  }
  CHECK(reused > 200);
}

TEST_CASE("A failed recording leaves the graph's scratch as it was", "[model][reuse][S63][B20]") {
  const Context context = Context::open(test_device());
  TestSession test(context);
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const Region whole = test.session.allocate(2 * kCount, {.label = "whole"});
  const TypedRegion<std::uint8_t> part{whole.slice(0, kCount), bytes_desc(kCount)};
  const Region small = test.session.allocate(8, {.label = "small"});
  const Region large = test.session.allocate(4096, {.label = "large"});
  const ModelFragment fails =
      test.freeze()
          .fragment(trusted,
                    {.inputs = {part}, .commands = {fill(small, 1), fill(large, 1), fill(whole.slice(kCount, 8), 1)}})
          .reuse_private_scratch(trusted);
  CHECK(x.desc == bytes_desc(kCount));
  const ModelFragment good = scratch_of(context, {{8, Placement::device}}, 1);
  Graph graph(context);
  const DeviceTensor input = graph.tensor(bytes_desc(kCount));
  static_cast<void>(good.record(graph, {}));
  const Error error = check_refusal_changes_nothing([&] { return ModelState(context, graph); },
                                                    [&] { static_cast<void>(fails.record(graph, {input})); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.sentence(), "passes the 64 bytes bound at byte 0."));
  static_cast<void>(good.record(graph, {}));
  CHECK(GraphAccess::state(graph).scratch_pool.size() == 1);
  CHECK(GraphAccess::state(graph).allocations[GraphAccess::state(graph).scratch_pool[0]].users == 2);
}

TEST_CASE("A stack of encoders in one scratch gives the answers of one that shares none", "[model][reuse][S68][S70]") {
  const Context context = Context::open(test_device());
  const auto encoder = [&](std::uint8_t mask) {
    TestSession test(context);
    const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
    const auto a = test.session.allocate<std::uint8_t>({kCount + mask}, {.label = "a"});
    const auto b = test.session.allocate<std::uint8_t>({kCount}, {.label = "b"});
    const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
    return test.freeze().fragment(
        trusted, {.inputs = {x},
                  .outputs = {y},
                  .commands = {test.xor_of(x, a.slice(mask, kCount), mask), test.xor_of(a.slice(mask, kCount), b, 0x0f),
                               test.xor_of(b, y, 0xf0), fill(a, mask)}});
  };
  std::vector<ModelFragment> layers;
  std::uint8_t mask = 0xff;
  for (std::uint8_t i = 1; i <= 12; ++i) {
    layers.push_back(encoder(i));
    mask = static_cast<std::uint8_t>(mask ^ i ^ 0xff);
  }
  mask = static_cast<std::uint8_t>(mask ^ 0xff);
  const auto prepare = [&](bool reuses) {
    return PreparedModel::prepare(
        context,
        [&](Context& home) {
          Graph graph(home, "encoders");
          const DeviceTensor input = graph.tensor(bytes_desc(kCount));
          std::vector<DeviceTensor> tensors{input};
          for (const ModelFragment& layer : layers)
            tensors = (reuses ? layer.reuse_private_scratch(trusted) : layer).record(graph, tensors);
          return InferenceGraph{std::move(graph), {input}, std::move(tensors)};
        },
        {.slots = 3});
  };
  PreparedModel shared = prepare(true);
  PreparedModel apart = prepare(false);
  CHECK(shared.topology().requested_bytes < apart.topology().requested_bytes / 2 + 13 * kCount);
  for (std::uint32_t round = 0; round < 12; ++round) {
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, round);
    Inference one = submit(shared, input);
    Inference two = submit(shared, xored(input, 0xaa));
    CHECK(infer(apart, input) == xored(input, mask));
    CHECK(result(two) == xored(input, static_cast<std::uint8_t>(mask ^ 0xaa)));
    CHECK(result(one) == xored(input, mask));
  }
}

TEST_CASE("A thousand fragments in one scratch make a chain and not a thicket", "[model][reuse][S70][B9]") {
  const Context context = Context::open(test_device());
  TestSession test(context);
  const auto h = test.session.allocate<std::uint8_t>({kCount}, {.label = "h"});
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const ModelFragment fragment =
      test.freeze()
          .fragment(trusted, {.inputs = {x}, .outputs = {x}, .commands = {test.xor_of(x, h, 1), test.xor_of(h, x, 2)}})
          .reuse_private_scratch(trusted);
  PreparedModel pool = PreparedModel::prepare(context, [&](Context& home) {
    Graph graph(home);
    const DeviceTensor input = graph.tensor(bytes_desc(kCount));
    std::vector<DeviceTensor> tensors{input};
    for (int i = 0; i < 1000; ++i) tensors = fragment.record(graph, tensors);
    return InferenceGraph{std::move(graph), {input}, std::move(tensors)};
  });
  CHECK(pool.topology().edges.size() == pool.topology().nodes.size() - 1);
  CHECK(pool.topology().requested_bytes == 2 * kCount);
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  CHECK(infer(pool, input) == input);
}

}  // namespace weft::test
