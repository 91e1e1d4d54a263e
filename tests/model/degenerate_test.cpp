#include "catch.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include "support/model_state.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// Empty work, and work on one range alone.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 1024;

}  // namespace

TEST_CASE("Empty work is refused when it is stated and never disturbs what follows", "[model][case14]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  const ModelDefinition model = test.freeze();
  const auto device = open_device(test_device());
  const Region empty = x.slice(0, 0);
  const auto check_refused = [&](FragmentOptions options, const std::string& sentence) {
    const Error error = check_refusal_changes_nothing(
        [&] { return ModelState(test.context); },
        [&] { static_cast<void>(model.fragment(trusted, std::move(options)).prepare()); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
    CHECK(device->health().ok());
    PreparedModel prepared =
        model.fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {test.xor_of(x, y, 3)}}).prepare();
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
    CHECK(infer(prepared, input) == xored(input, 3));
  };
  check_refused({.commands = {fill(empty, 1)}}, "The fill of allocation \"x\" is empty.");
  check_refused({.commands = {test.xor_bytes(grid(0, 1, 1), x, y, kCount, std::uint8_t{3})}},
                "The grid is (0,1,1); no axis may be 0.");
  check_refused({.commands = {test.xor_of(x, y, 3), test.xor_bytes(grid(1), empty, y, kCount, std::uint8_t{3})}},
                "A region of allocation \"x\" is bound with 0 bytes.");
  check_refused({.inputs = {{empty, TensorDesc(DType::u8, {0})}}, .commands = {test.xor_of(x, y, 3)}},
                "The descriptor u8[0] of allocation \"x\" is empty.");
  check_refused({}, "The graph \"\" has no commands.");
}

TEST_CASE("A dispatch in place waits for no one and is right", "[model][case16]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  PreparedModel prepared =
      test.freeze()
          .fragment(trusted, {.inputs = {x}, .outputs = {x}, .commands = {test.xor_of(x, x, 0x3c).label("in place")}})
          .prepare();
  const Topology& topology = prepared.topology();
  REQUIRE(topology.count(NodeKind::dispatch) == 1);
  for (const TopologyEdge& edge : topology.edges) {
    INFO(edge.from << " -> " << edge.to);
    CHECK(edge.from != edge.to);
  }
  for (std::uint32_t round = 0; round < 3; ++round) {
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, round);
    CHECK(infer(prepared, input) == xored(input, 0x3c));
  }
}

}  // namespace weft::test
