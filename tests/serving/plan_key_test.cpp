#include "catch.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/model_fixture.h"
#include <weft/plan_cache.h>
#include <weft/plan_key.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

/// The parts of one definition, from which fragments are made anew each time.
struct Parts {
  Parts()
      : test(),
        same_name(test.session.load(test::xor_bytes)),
        x(test.session.allocate<std::uint8_t>({256}, {.label = "x"})),
        y(test.session.allocate<std::uint8_t>({256}, {.label = "y"})),
        words(test.session.load(test::shared_words)),
        n(test.session.allocate<std::uint32_t>({1}, {.label = "n"})),
        model(test.freeze()) {}

  TestSession test;
  Kernel<In<std::uint8_t>, Out<std::uint8_t>, std::uint64_t, std::uint8_t> same_name;
  TypedRegion<std::uint8_t> x;
  TypedRegion<std::uint8_t> y;
  Kernel<Out<std::uint32_t>, std::uint32_t> words;
  TypedRegion<std::uint32_t> n;
  ModelDefinition model;
};

/// What a fragment is made of, each with a usual value.
struct Recipe {
  std::uint64_t bytes = 128;
  std::uint8_t mask = 1;
  std::uint64_t blocks = 1;
  bool other_kernel = false;
  std::uint64_t shared_bytes = 64;
  std::uint64_t input = 128;
  std::uint8_t fill_value = 3;
  bool states_order = false;
  std::string label = "usual";
};

ModelFragment fragment_of(const Parts& parts, const Recipe& recipe) {
  const Region x = parts.x.slice(0, recipe.bytes);
  const Region y = parts.y.slice(0, recipe.bytes);
  const auto& kernel = recipe.other_kernel ? parts.same_name : parts.test.xor_bytes;
  const auto fill_end = [&] { return fill(parts.y.slice(192, 64), recipe.fill_value); };
  const Command last = recipe.states_order ? fill_end().after({0}) : fill_end();
  return parts.model.fragment(
      trusted, {.inputs = {TensorRegion(x, TensorDesc(DType::u8, {std::min(recipe.input, recipe.bytes)}))},
                .outputs = {TensorRegion(y, TensorDesc(DType::u8, {recipe.bytes}))},
                .commands = {kernel(grid(recipe.blocks), x, y, recipe.bytes, recipe.mask),
                             parts.words(workload(recipe.shared_bytes), parts.n, 1u), last},
                .label = recipe.label});
}

PlanKey key_of(const Parts& parts, const Recipe& recipe, const PrepareOptions& options = {}) {
  return PlanKey::of(fragment_of(parts, recipe), options);
}

/// What it answers: its first command writes all of the output, its last one from byte 192 on.
std::vector<std::uint8_t> answer_of(const Recipe& recipe, std::vector<std::uint8_t> input) {
  input.resize(recipe.bytes);
  std::vector<std::uint8_t> answer = xored(input, recipe.mask);
  if (answer.size() > 192) std::fill(answer.begin() + 192, answer.end(), recipe.fill_value);
  return answer;
}

}  // namespace

TEST_CASE("Fragments that differ in one thing give each its own result through a cache",
          "[serving][plan-key][R35][case-34]") {
  const Parts parts;
  const Recipe usual{.bytes = 256, .input = 256};
  const auto varied = [&](auto Recipe::*what, auto value) {
    Recipe recipe = usual;
    recipe.*what = value;
    return recipe;
  };
  std::uint64_t seed = 0;
  for (const Recipe& other : {varied(&Recipe::mask, std::uint8_t{2}), varied(&Recipe::blocks, 2u),
                              varied(&Recipe::other_kernel, true), varied(&Recipe::shared_bytes, 68u),
                              varied(&Recipe::bytes, 128u), varied(&Recipe::bytes, 255u), varied(&Recipe::input, 128u),
                              varied(&Recipe::fill_value, std::uint8_t{4}), varied(&Recipe::states_order, true)}) {
    PlanCache cache;
    for (const Recipe& recipe : {usual, other, usual, other}) {
      INFO("answer " << seed);
      PreparedModel model = cache.get(fragment_of(parts, recipe), {}, in_a_minute()).value();
      const std::vector<std::uint8_t> input = fresh_bytes(std::min(recipe.input, recipe.bytes), ++seed);
      CHECK(infer(model, input) == answer_of(recipe, input));
    }
    CHECK(cache.statistics().misses == 2);
    CHECK(cache.statistics().hits == 2);
  }
}

TEST_CASE("Fragments that are built anew from the same content have the same key",
          "[serving][plan-key][R35][case-35]") {
  const Parts parts;
  const PlanKey key = key_of(parts, {});
  CHECK(key == key_of(parts, {}));
  CHECK(key == key_of(parts, {.label = "another"}));
  CHECK(key.label() == "usual");
  CHECK(key.compare(key_of(parts, {})).first_difference.empty());
}

TEST_CASE("Fragments that differ in one thing have different keys that tell it", "[serving][plan-key][R35][case-34]") {
  const Parts parts;
  const PlanKey key = key_of(parts, {});
  const auto check_differs = [&](const PlanKey& other, const std::string& part) {
    INFO(part);
    CHECK(!(key == other));
    CHECK(key.compare(other).first_difference == part);
    CHECK(other.compare(key).first_difference == part);
  };
  check_differs(key_of(parts, {.mask = 2}), "commands[0] scalars");
  check_differs(key_of(parts, {.blocks = 2}), "commands[0] grid");
  check_differs(key_of(parts, {.other_kernel = true}), "commands[0] kernel");
  check_differs(key_of(parts, {.shared_bytes = 68}), "commands[1] shared memory");
  check_differs(key_of(parts, {.bytes = 129}), "commands[0] scalars");
  check_differs(key_of(parts, {.input = 127}), "inputs[0]");
  check_differs(key_of(parts, {.fill_value = 4}), "commands[2] fill");
  check_differs(key_of(parts, {.states_order = true}), "commands[2] order");
  check_differs(PlanKey::of(fragment_of(parts, {}).reuse_private_scratch(trusted)), "reused scratch");
  const Parts others;
  check_differs(key_of(others, {}), "definition");

  check_differs(key_of(parts, {}, {.slots = 2}), "slots");
  check_differs(key_of(parts, {}, {.forms = {{Side::host, Side::device}}}), "forms");
  check_differs(key_of(parts, {}, {.copies = CopyMethod::engine}), "copies");
  check_differs(key_of(parts, {}, {.order = Order::serial}), "order");
  check_differs(key_of(parts, {}, {.spin = std::chrono::nanoseconds(1)}), "spin");
  check_differs(key_of(parts, {}, {.hang_after = std::chrono::nanoseconds(0)}), "hang_after");
  check_differs(key_of(parts, {}, {.separate_allocations = true}), "separate_allocations");
}

TEST_CASE("A region that ends elsewhere makes another key", "[serving][plan-key][R35][case-34]") {
  const Parts parts;
  const auto key = [&](std::uint64_t end) {
    return PlanKey::of(
        parts.model.fragment(trusted, {.outputs = {parts.y}, .commands = {fill(parts.y.slice(0, end), 1)}}));
  };
  CHECK(key(100) == key(100));
  CHECK(key(100).compare(key(101)).first_difference == "commands[0] fill");
}

TEST_CASE("A key of the caller's has the parts that it is given", "[serving][plan-key][R35]") {
  const PlanKey key = PlanKey().add("model", "chat").add("batch", 32);
  CHECK(key == PlanKey().add("model", "chat").add("batch", 32));
  CHECK(!(key == PlanKey().add("batch", 32).add("model", "chat")));
  CHECK(!(PlanKey().add("ab", "c") == PlanKey().add("a", "bc")));
  CHECK(!(PlanKey().add("a", "") == PlanKey()));
  const PlanKey::Likeness likeness = key.compare(PlanKey().add("model", "chat").add("batch", 64));
  CHECK(likeness.equal_parts == 1);
  CHECK(likeness.first_difference == "batch");
  CHECK(key.compare(PlanKey().add("model", "chat")).first_difference == "batch");
  CHECK(PlanKey().compare(key).first_difference == "model");
}

}  // namespace weft::test
