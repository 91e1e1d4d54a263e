#include "catch.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include <weft/kernels.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

// Which edges are programmatic. That their kernels wait: `check: shipped kernels wait for their dependencies`.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

/// scale, scale, fill of what the second read, a kernel that promises nothing, scale.
struct ScalingModel {
  explicit ScalingModel(std::optional<KernelSpec> second = {}) : ScalingModel(TestSession(), std::move(second)) {}
  ScalingModel(TestSession test, std::optional<KernelSpec> second)
      : x(test.session.allocate<float>({kCount}, {.label = "x"})),
        a(test.session.allocate<float>({kCount}, {.label = "a"})),
        b(test.session.allocate<float>({kCount}, {.label = "b"})),
        y(test.session.allocate<float>({kCount}, {.label = "y"})),
        fragment(make(std::move(test), std::move(second))) {}

  ModelFragment make(TestSession test, std::optional<KernelSpec> second) {
    const KernelId scale = test.session.load(kernels::scale_spec());
    const KernelId other = second ? test.session.load(*second) : scale;
    const auto scaled = [&](KernelId kernel, const Region& from, const Region& to) {
      return dispatch(kernel, grid(1), {from, to, 2.0f, kCount});
    };
    const std::vector<Command> commands{scaled(scale, x, a), scaled(other, a, b), fill(a, 0), test.xor_of(b, a, 0),
                                        scaled(scale, a, y)};
    return test.freeze().fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = commands});
  }

  TypedRegion<float> x;
  TypedRegion<float> a;
  TypedRegion<float> b;
  TypedRegion<float> y;
  ModelFragment fragment;
};

/// By edge in the order of the topology: whether it is programmatic. Node 0 is the copy in, then come the commands, and
/// the copy out.
std::vector<bool> edge_kinds(const PreparedModel& model) {
  std::vector<TopologyEdge> edges = model.topology().edges;
  std::ranges::sort(edges, {}, [](const TopologyEdge& edge) { return std::pair(edge.to, edge.from); });
  std::vector<bool> kinds;
  for (const TopologyEdge& edge : edges) kinds.push_back(edge.programmatic);
  return kinds;
}

void require_answers(PreparedModel model) {
  std::optional<ModelSlot> slot = model.acquire(in_a_minute());
  REQUIRE(slot.has_value());
  std::ranges::fill(slot->input<float>(0), 3.0f);
  Inference run = std::move(*slot).submit();
  REQUIRE(run.wait(in_a_minute()));
  CHECK(std::ranges::all_of(run.output<float>(0), [](float value) { return value == 24.0f; }));
}

}  // namespace

TEST_CASE("An edge is programmatic where both of its kernels promise to wait", "[model][programmatic]") {
  PreparedModel model = ScalingModel().fragment.prepare();
  INFO(to_text(model.topology()));
  // copy in ~ scale ~ scale - fill - xor - scale ~ copy out.
  CHECK(edge_kinds(model) == std::vector<bool>{true, true, false, false, false, true});
  CHECK(to_text(model.topology()).find("<- ~n1 [raw \"a\" 0..256]") != std::string::npos);
  CHECK(to_json(model.topology()).find("\"programmatic\": true") != std::string::npos);
  require_answers(model);
}

TEST_CASE("No edge is programmatic where the options say so", "[model][programmatic]") {
  PreparedModel model = ScalingModel().fragment.prepare({.programmatic = false});
  CHECK(edge_kinds(model) == std::vector<bool>(6, false));
  CHECK(to_json(model.topology()).find("programmatic") == std::string::npos);
  require_answers(model);
}

TEST_CASE("A kernel that promises nothing or cooperates has full edges", "[model][programmatic]") {
  KernelSpec spec = kernels::scale_spec();
  SECTION("nothing") { spec.programmatic = false; }
  SECTION("cooperates") { spec.cooperative = true; }
  PreparedModel model = ScalingModel(spec).fragment.prepare();
  CHECK(edge_kinds(model) == std::vector<bool>{true, false, false, false, false, true});
  require_answers(model);
}

}  // namespace weft::test
