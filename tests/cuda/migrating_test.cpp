#include "catch.h"
#include "cuda/migrating_example.h"
#include "support/deadlines.h"
#include <weft/weft.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <utility>
#include <vector>

// The examples of docs/migrating.md give the answers that the work by hand gives.

namespace weft::test {
namespace {

constexpr std::uint32_t kCount = 5000;
constexpr std::uint64_t kSeed = 20260311;

/// Of digits, whose squares and their sum are exact in any order.
Signals fresh_signals(std::size_t count) {
  std::mt19937_64 random(kSeed);
  Signals signals(count, std::vector<std::uint8_t>(kCount));
  for (auto& signal : signals) std::ranges::generate(signal, [&] { return static_cast<std::uint8_t>(random() % 10); });
  return signals;
}

std::vector<float> values_of(const std::vector<std::uint8_t>& signal) { return {signal.begin(), signal.end()}; }

Shares exact(const std::vector<std::uint8_t>& signal) {
  float total = 0;
  for (const float x : values_of(signal)) total += x * x;
  Shares answer;
  for (const float x : values_of(signal)) {
    answer.share.push_back(x * x / total);
    if (answer.share.back() * static_cast<float>(kCount) > 2.0f) ++answer.large;
  }
  return answer;
}

PreparedModel model(PrepareOptions options) {
  return shares_model(Context::open(Device::cuda()), kCount, std::move(options));
}

}  // namespace

TEST_CASE("A capture by hand and the same work as a model give the same answers", "[cuda][captured][docs][cuda-only]") {
  INFO("seed " << kSeed);
  const Signals signals = fresh_signals(6);
  const std::vector<Shares> before = shares_by_hand(signals);
  PreparedModel after = model({.slots = 4});
  for (std::size_t i = 0; i < signals.size(); ++i) {
    CHECK(before[i] == exact(signals[i]));
    CHECK(shares_of(after, values_of(signals[i]), in_a_minute()) == before[i]);
  }
}

TEST_CASE("The fill of the migrated capture waits for nothing and only its reader waits for it",
          "[cuda][captured][docs][cuda-only]") {
  const PreparedModel after = model({});
  const Topology& topology = after.topology();
  CHECK(topology.count(NodeKind::captured) == 1);
  const auto node = std::ranges::find(topology.nodes, NodeKind::fill, &TopologyNode::kind);
  REQUIRE(node != topology.nodes.end());
  const auto fill = static_cast<std::uint32_t>(node - topology.nodes.begin());
  CHECK(std::ranges::count(topology.edges, fill, &TopologyEdge::to) == 0);
  REQUIRE(std::ranges::count(topology.edges, fill, &TopologyEdge::from) == 1);
  const auto edge = std::ranges::find(topology.edges, fill, &TopologyEdge::from);
  CHECK(topology.nodes.at(edge->to).kind == NodeKind::dispatch);
}

TEST_CASE("A model as a stage of a stream gives the answers of the whole by hand",
          "[cuda][captured][interop][docs][cuda-only]") {
  INFO("seed " << kSeed);
  const Signals signals = fresh_signals(12);
  const PreparedModel stage = model({.slots = 2, .forms = {{Side::device, Side::device}}});
  const std::vector<Shares> staged = staged_shares(stage, signals);
  const std::vector<Shares> by_hand = shares_by_hand(signals);
  REQUIRE(staged.size() == by_hand.size());
  for (std::size_t i = 0; i < signals.size(); ++i) CHECK(staged[i] == by_hand[i]);
}

TEST_CASE("A model's graph that was taken out gives its answers without weft", "[cuda][captured][docs][cuda-only]") {
  INFO("seed " << kSeed);
  const Signals signals = fresh_signals(2);
  PreparedModel pool = model({.slots = 2});
  const std::optional<ModelSlot> slot = pool.try_acquire();
  REQUIRE(slot.has_value());
  CHECK(shares_without_weft(pool, *slot, values_of(signals[0])) == exact(signals[0]));
  CHECK(shares_without_weft(pool, *slot, values_of(signals[1])) == exact(signals[1]));
  CHECK(shares_of(pool, values_of(signals[1]), in_a_minute()) == exact(signals[1]));
}

}  // namespace weft::test
