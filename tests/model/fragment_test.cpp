#include "catch.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include "support/model_state.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;
constexpr std::uint8_t kMask = 1;

/// Kernels whose specs go beyond those of the test kernels, over the same code.
KernelSpec with(KernelSpec spec, const std::function<void(KernelSpec&)>& change) {
  change(spec);
  return spec;
}

/// A struct passed by value that holds one pointer.
struct One {
  std::uint64_t pointer = 0;
};

/// A definition with one region of each kind, and the ways to be refused.
struct Validation {
  TestSession test;
  Region x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  TypedRegion<std::uint8_t> y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  TypedRegion<std::uint32_t> n = test.session.allocate<std::uint32_t>({4}, {.label = "n"});
  TypedRegion<std::uint8_t> w = test.weight(std::vector<std::uint8_t>(kCount, 7));
  KernelId no_rule = test.session.load(with(xor_bytes_spec(), [](KernelSpec& spec) { spec.launch = {}; }));
  KernelId index_64 = test.session.load(
      with(xor_bytes_spec(), [](KernelSpec& spec) { spec.parameters[2].kind = ParameterKind::index; }));
  KernelId index_32 = test.session.load(
      with(increment_spec(), [](KernelSpec& spec) { spec.parameters[1].kind = ParameterKind::index; }));
  KernelId by_value = test.session.load(
      with(increment_spec(), [](KernelSpec& spec) { spec.parameters[0].kind = ParameterKind::bytes; }));
  KernelId aligned =
      test.session.load(with(xor_bytes_spec(), [](KernelSpec& spec) { spec.parameters[1].alignment = 16; }));
  KernelId shared =
      test.session.load(with(xor_bytes_spec(), [](KernelSpec& spec) { spec.dynamic_shared_bytes = 1u << 20; }));
  KernelId shared_by_rule = test.session.load(with(xor_bytes_spec(), [](KernelSpec& spec) {
    spec.launch = [](std::span<const std::uint64_t> words) { return LaunchConfig{grid(1), words[0]}; };
  }));
  ModelDefinition model = test.freeze();
  std::uint64_t session = x.session;

  [[nodiscard]] Error refused(FragmentOptions options) const {
    const Error error =
        check_refusal_changes_nothing([&] { return ModelState(model.context()); },
                                      [&] { static_cast<void>(model.fragment(trusted, std::move(options))); });
    CHECK(error.code() == ErrorCode::invalid);
    accept();
    return error;
  }

  /// Checks a refusal of the last of these commands, with what stands around it, innermost first.
  void refuse(std::vector<Command> commands, const std::string& sentence,
              const std::vector<std::string>& contexts) const {
    const Error error = refused({.commands = std::move(commands)});
    CHECK(error.sentence() == sentence);
    CHECK(error.contexts() == contexts);
  }
  void refuse(const Command& command, const std::string& sentence, const std::string& of) const {
    refuse(std::vector{command}, sentence, std::vector<std::string>{"validating commands[0], " + of});
  }
  /// Checks a refusal of a region that a dispatch binds.
  void refuse_bound(const Command& command, const std::string& sentence, const std::string& bound,
                    const std::string& kernel) const {
    refuse(std::vector{command}, sentence,
           std::vector<std::string>{"binding " + bound, "validating commands[0], dispatch of \"" + kernel + "\""});
  }
  void refuse_xor(std::vector<Argument> arguments, const std::string& sentence) const {
    refuse(dispatch(test.xor_bytes, grid(1), std::move(arguments)), sentence, "dispatch of \"xor_bytes\"");
  }
  void refuse_xor_bound(std::vector<Argument> arguments, const std::string& sentence, const std::string& bound) const {
    refuse_bound(dispatch(test.xor_bytes, grid(1), std::move(arguments)), sentence, bound, "xor_bytes");
  }
  void refuse_io(TensorRegion tensor, const std::string& sentence) const {
    for (const bool is_input : {true, false}) {
      FragmentOptions options;
      (is_input ? options.inputs : options.outputs) = {{y, y.desc}, tensor};
      const Error error = refused(std::move(options));
      CHECK(error.sentence() == sentence);
      REQUIRE(error.contexts().size() == 1);
      CHECK(error.contexts()[0] == (is_input ? "validating inputs[1]" : "validating outputs[1]"));
    }
  }

  /// The definition serves a valid request afterwards.
  void accept() const {
    PreparedModel prepared =
        model.fragment(trusted, {.inputs = {{x, y.desc}}, .outputs = {y}, .commands = {test.xor_of(x, y, kMask)}})
            .prepare();
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
    CHECK(infer(prepared, input) == xored(input, kMask));
  }

  [[nodiscard]] std::string foreign(const std::string& what) const {
    return "The " + what + " belongs to session " + std::to_string(session + 1000000) +
           "; this definition comes from session " + std::to_string(session) + ".";
  }
  [[nodiscard]] Region of_another_session(Region region) const {
    region.session += 1000000;
    return region;
  }
};

const TensorDesc kBytes(DType::u8, {kCount});

}  // namespace

TEST_CASE("An input or output that does not start at a multiple of its elements is refused", "[model][S22]") {
  TestSession test;
  const Region bytes = test.session.allocate(64, {.label = "bytes"});
  const ModelDefinition model = test.freeze();
  const TensorDesc one(DType::f64, {1});
  for (const bool is_input : {true, false}) {
    const auto made = [&](std::uint64_t offset) {
      FragmentOptions options{.commands = {fill(bytes, 1)}};
      (is_input ? options.inputs : options.outputs).emplace_back(bytes.slice(offset, 8), one);
      return model.fragment(trusted, std::move(options));
    };
    const Error error = refusal([&] { static_cast<void>(made(4)); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() ==
          "The region starts at byte 4 of allocation \"bytes\"; elements of f64 start at multiples of 8.");
    CHECK(error.contexts() == std::vector<std::string>{is_input ? "validating inputs[0]" : "validating outputs[0]"});
    static_cast<void>(made(8));
  }
}

TEST_CASE("A region of another session is refused wherever it stands", "[model][S14][S20][S25][S29]") {
  const Validation v;
  const Region foreign = v.of_another_session(v.x);
  v.refuse_io({foreign, kBytes}, v.foreign("region"));
  v.refuse(fill(foreign, 0), v.foreign("region"), "fill");
  v.refuse_xor_bound({foreign, v.y, kCount, kMask}, v.foreign("region"), "argument 0 (\"x\")");
}

TEST_CASE("A region of an unknown allocation is refused wherever it stands", "[model][S15][S20][S25][S29]") {
  const Validation v;
  Region unknown = v.x;
  unknown.allocation = 9;
  const std::string sentence = "The region names allocation 9; the definition has 4.";
  v.refuse_io({unknown, kBytes}, sentence);
  v.refuse(fill(unknown, 0), sentence, "fill");
  v.refuse_xor_bound({v.x, unknown, kCount, kMask}, sentence, "argument 1 (\"y\")");
}

TEST_CASE("A region that passes its allocation is refused wherever it stands", "[model][S16][S20][S25][S29]") {
  const Validation v;
  Region region = v.x;
  region.offset = 1;
  std::string sentence = "The region of 64 bytes at byte 1 passes the 64 bytes of allocation \"x\".";
  v.refuse_io({region, kBytes}, sentence);
  v.refuse(fill(region, 0), sentence, "fill");
  v.refuse_xor_bound({region, v.y, kCount, kMask}, sentence, "argument 0 (\"x\")");

  region.offset = std::numeric_limits<std::uint64_t>::max();
  sentence = "The region of 64 bytes at byte 18446744073709551615 passes the 64 bytes of allocation \"x\".";
  v.refuse_io({region, kBytes}, sentence);
  v.refuse(fill(region, 0), sentence, "fill");
  v.refuse_xor_bound({v.x, region, kCount, kMask}, sentence, "argument 1 (\"y\")");
}

TEST_CASE("An empty region at the end of its allocation fails for being empty alone", "[model][S17][S26][S31]") {
  const Validation v;
  const Region end = v.x.slice(kCount, 0);
  v.refuse(fill(end, 0), "The fill of allocation \"x\" is empty.", "fill");
  v.refuse_xor_bound({end, v.y, kCount, kMask}, "A region of allocation \"x\" is bound with 0 bytes.",
                     "argument 0 (\"x\")");
}

TEST_CASE("Regions are held against the whole allocation and not against what other commands use", "[model][S18]") {
  const Validation v;
  const ModelFragment fragment =
      v.model.fragment(trusted, {.commands = {fill(v.x.slice(0, 1), 0), fill(v.x.slice(63, 1), 0)}});
  CHECK(fragment.context() == v.model.context());
}

TEST_CASE("An input or output with an empty descriptor is refused", "[model][S21]") {
  const Validation v;
  v.refuse_io({v.x, TensorDesc(DType::u8, {0, 4})}, "The descriptor u8[0,4] of allocation \"x\" is empty.");
}

TEST_CASE("An input or output with a descriptor beyond its region is refused", "[model][S22]") {
  const Validation v;
  v.refuse_io({v.x.slice(0, 8), TensorDesc(DType::u8, {9})},
              "The descriptor u8[9] has 9 bytes; its region of allocation \"x\" has 8.");
}

TEST_CASE("An input or output in a weight is refused", "[model][S23]") {
  const Validation v;
  v.refuse_io(v.w, "The region is of the weight \"w\"; inputs and outputs are never weights.");
}

TEST_CASE("Inputs and outputs may repeat and overlap and be absent", "[model][S24]") {
  const Validation v;
  const TensorRegion x{v.x, kBytes};
  const TensorRegion part{v.x.slice(8, 16), TensorDesc(DType::u8, {16})};
  CHECK_NOTHROW(static_cast<void>(
      v.model.fragment(trusted, {.inputs = {x, x, part}, .outputs = {part, x}, .commands = {fill(v.x, 1)}})));
  CHECK_NOTHROW(static_cast<void>(v.model.fragment(trusted, {.commands = {fill(v.x, 1)}})));
  CHECK_NOTHROW(static_cast<void>(v.model.fragment(trusted, {.inputs = {x}})));
}

TEST_CASE("A fill of a weight is refused", "[model][S25]") {
  const Validation v;
  v.refuse(fill(v.w, 0).label("clear"), "The fill targets the weight \"w\", which is immutable.",
           "fill labelled \"clear\"");
}

TEST_CASE("A kernel of another session is refused", "[model][S27]") {
  const Validation v;
  KernelId kernel = v.test.xor_bytes;
  kernel.session += 1000000;
  v.refuse(dispatch(kernel, grid(1), {v.x, v.y, kCount, kMask}), v.foreign("kernel"), "dispatch");
}

TEST_CASE("An unknown kernel is refused", "[model][S28]") {
  const Validation v;
  KernelId kernel = v.test.xor_bytes;
  kernel.index = 99;
  v.refuse(dispatch(kernel, grid(1), {v.x, v.y, kCount, kMask}),
           "The kernel has index 99; the definition has 11 kernels.", "dispatch");
}

TEST_CASE("A dispatch that writes a weight is refused and one that reads it is not", "[model][S30]") {
  const Validation v;
  const std::string sentence = "The kernel writes the weight \"w\", which is immutable.";
  v.refuse_xor_bound({v.x, v.w, kCount, kMask}, sentence, "argument 1 (\"y\")");
  v.refuse_bound(dispatch(v.test.increment, grid(1), {Region(v.w), std::uint32_t{1}}), sentence, "argument 0 (\"x\")",
                 "increment");
  CHECK_NOTHROW(static_cast<void>(v.model.fragment(trusted, {.commands = {v.test.xor_of(v.w, v.y, kMask)}})));
}

TEST_CASE("Another number of arguments than the kernel has is refused", "[model][S33]") {
  const Validation v;
  v.refuse_xor({v.x, v.y, kCount}, "The call has 3 arguments; the kernel has 4 parameters.");
  v.refuse_xor({v.x, v.y, kCount, kMask, kMask}, "The call has 5 arguments; the kernel has 4 parameters.");
  v.refuse_xor({v.x, v.y, packed(Constants().add(kCount).add(kMask).add(kMask))},
               "The call has 5 arguments; the kernel has 4 parameters.");
  v.refuse_xor({v.x, v.y, indices({kCount})}, "The call has 3 arguments; the kernel has 4 parameters.");
}

TEST_CASE("An argument of another kind than the parameter is refused", "[model][S33]") {
  const Validation v;
  v.refuse_xor({v.x, kCount, kCount, kMask}, "The argument 1 (\"y\") is a scalar; the kernel takes a region there.");
  v.refuse_xor({v.x, v.y, v.y, kMask}, "The argument 2 (\"count\") is a region; the kernel takes a scalar there.");
  v.refuse_xor({index(3), v.y, kCount, kMask}, "The argument 0 (\"x\") is an index; the kernel takes a region there.");
  v.refuse_xor({v.x, v.y, bytes(Dim3{}), kMask},
               "The argument 2 (\"count\") is a struct passed by value; the kernel takes a scalar there.");
}

TEST_CASE("An access that contradicts the spec is refused", "[model]") {
  const Validation v;
  v.refuse_xor({v.x.write(), v.y.write(), kCount, kMask},
               "The argument 0 (\"x\") is bound as write; the kernel's spec says read.");
  v.refuse_xor({v.x.read(), v.y.read_write(), kCount, kMask},
               "The argument 1 (\"y\") is bound as read_write; the kernel's spec says write.");
}

TEST_CASE("A scalar of another width than the kernel was compiled for is refused", "[model][S34]") {
  const Validation v;
  v.refuse_xor({v.x, v.y, std::uint32_t{64}, kMask},
               "The argument 2 (\"count\") has 4 bytes; the kernel was compiled for 8.");
  v.refuse_xor({v.x, v.y, packed(Constants().add(kCount).add(std::uint16_t{1}))},
               "The argument 3 (\"mask\") has 2 bytes; the kernel was compiled for 1.");
}

TEST_CASE("An index that its parameter cannot carry is refused", "[model][S35]") {
  const Validation v;
  const std::uint64_t wide = std::uint64_t{1} << 32;
  v.refuse(dispatch(v.index_32, grid(1), {v.n, index(wide)}),
           "The argument 1 (\"amount\") is 4294967296; the kernel was compiled for 4 bytes there.",
           "dispatch of \"increment\"");
  v.refuse(dispatch(v.index_64, grid(1), {v.x, v.y, indices({wide, 256})}),
           "The argument 3 (\"mask\") is 256; the kernel was compiled for 1 bytes there.", "dispatch of \"xor_bytes\"");
  CHECK_NOTHROW(static_cast<void>(
      v.model.fragment(trusted, {.commands = {dispatch(v.index_32, grid(1), {v.n, index(wide - 1)}),
                                              dispatch(v.index_64, grid(1), {v.x, v.y, indices({kCount, 255})})}})));
}

TEST_CASE("A pointer inside a struct must stand inside it alone and say its access", "[model]") {
  struct Pair {
    std::uint64_t pointer = 0;
    std::uint64_t more = 0;
  };
  const Validation v;
  const std::string of = "dispatch of \"increment\"";
  const auto call = [&](Bytes bytes) { return dispatch(v.by_value, grid(1), {std::move(bytes), std::uint32_t{1}}); };
  v.refuse(call(bytes(Pair{}, {{0, v.n.read_write()}})),
           "The argument 0 (\"x\") has 16 bytes; the kernel was compiled for 8.", of);
  v.refuse(call(bytes(One{}, {{0, {v.n, {}}}})), "The pointer at byte 0 of argument 0 (\"x\") does not say its access.",
           of);
  for (const std::uint64_t offset : {4u, 8u}) {
    v.refuse(call(bytes(One{}, {{offset, v.n.read_write()}})),
             "The pointer at byte " + std::to_string(offset) +
                 " of argument 0 (\"x\") does not stand at a multiple of 8 inside its 8 bytes.",
             of);
  }
  v.refuse_bound(call(bytes(One{}, {{0, v.w.write()}})), "The kernel writes the weight \"w\", which is immutable.",
                 "the pointer at byte 0 of argument 0 (\"x\")", "increment");
  v.refuse_bound(call(bytes(One{}, {{0, v.of_another_session(v.n).read()}})), v.foreign("region"),
                 "the pointer at byte 0 of argument 0 (\"x\")", "increment");
  v.refuse(call(bytes(One{}, {{0, {v.n, static_cast<Access>(7)}}})),
           "The access of the pointer at byte 0 of argument 0 (\"x\") is 7, which is none.", of);
  v.refuse(call(bytes(One{}, {{0, v.n.read()}, {0, v.n.read_write()}})),
           "Two pointers stand at byte 0 of argument 0 (\"x\").", of);
  CHECK_NOTHROW(
      static_cast<void>(v.model.fragment(trusted, {.commands = {call(bytes(One{}, {{0, v.n.read_write()}}))}})));
}

TEST_CASE("A binding that its offset misaligns is refused", "[model]") {
  const Validation v;
  v.refuse(dispatch(v.test.increment, grid(1), {v.n.slice(2, 4), std::uint32_t{1}}),
           "The argument 0 (\"x\") starts at byte 2 of its allocation; the kernel needs a multiple of 4.",
           "dispatch of \"increment\"");
  v.refuse(dispatch(v.by_value, grid(1), {bytes(One{}, {{0, v.n.slice(2, 4).read_write()}}), std::uint32_t{1}}),
           "The pointer at byte 0 of argument 0 (\"x\") leads to byte 2 of its allocation; the kernel needs a multiple "
           "of 4.",
           "dispatch of \"increment\"");
  v.refuse(dispatch(v.aligned, grid(1), {v.x, v.y.slice(8, 16), std::uint64_t{16}, kMask}),
           "The argument 1 (\"y\") starts at byte 8 of its allocation; the kernel needs a multiple of 16.",
           "dispatch of \"xor_bytes\"");
  CHECK_NOTHROW(static_cast<void>(v.model.fragment(
      trusted,
      {.commands = {dispatch(v.aligned, grid(1), {v.x.slice(1, 16), v.y.slice(16, 16), std::uint64_t{16}, kMask})}})));
}

TEST_CASE("A grid with an empty axis is refused", "[model][S37]") {
  const Validation v;
  const std::vector<Argument> arguments{v.x, v.y, kCount, kMask};
  const std::string of = "dispatch of \"xor_bytes\"";
  v.refuse(dispatch(v.test.xor_bytes, grid(0), arguments), "The grid is (0,1,1); no axis may be 0.", of);
  v.refuse(dispatch(v.test.xor_bytes, grid(1, 0), arguments), "The grid is (1,0,1); no axis may be 0.", of);
  v.refuse(dispatch(v.test.xor_bytes, grid(1, 1, 0), arguments), "The grid is (1,1,0); no axis may be 0.", of);
  v.refuse(dispatch(v.test.xor_bytes, workload(0), arguments), "The grid is (0,1,1); no axis may be 0.", of);
}

TEST_CASE("A grid beyond the device's limit on an axis is refused", "[model]") {
  const Validation v;
  const std::vector<Argument> arguments{v.x, v.y, kCount, kMask};
  const auto refuse = [&](Grid shape, const std::string& sentence) {
    v.refuse(dispatch(v.test.xor_bytes, shape, arguments), sentence, "dispatch of \"xor_bytes\"");
  };
  refuse(grid(2147483648), "The grid's x is 2147483648; the device allows 2147483647.");
  refuse(grid(std::uint64_t{1} << 40), "The grid's x is 1099511627776; the device allows 2147483647.");
  refuse(grid(1, 65536), "The grid's y is 65536; the device allows 65535.");
  refuse(grid(1, 1, 65536), "The grid's z is 65536; the device allows 65535.");
  CHECK_NOTHROW(static_cast<void>(v.model.fragment(
      trusted, {.commands = {dispatch(v.test.xor_bytes, grid(2147483647, 65535, 65535), arguments)}})));
}

TEST_CASE("Shared memory beyond the device's limit is refused", "[model]") {
  const Validation v;
  const std::vector<Argument> arguments{v.x, v.y, kCount, kMask};
  const std::uint64_t limit = open_device(test_device())->limits().max_shared_bytes;
  const auto sentence = [&](std::uint64_t bytes) {
    return "The launch needs " + std::to_string(bytes) +
           " bytes of dynamic shared memory beside 0 static ones; the device allows " + std::to_string(limit) +
           " together.";
  };
  const std::string of = "dispatch of \"xor_bytes\"";
  v.refuse(dispatch(v.shared, grid(1), arguments), sentence(1u << 20), of);
  for (const std::uint64_t bytes : {limit + 1, std::uint64_t{1} << 32, ~std::uint64_t{0}})
    v.refuse(dispatch(v.shared_by_rule, workload(bytes), arguments), sentence(bytes), of);
  CHECK_NOTHROW(static_cast<void>(
      v.model.fragment(trusted, {.commands = {dispatch(v.shared_by_rule, workload(limit), arguments)}})));
}

TEST_CASE("A workload for a kernel without a launch rule is refused", "[model][S13]") {
  const Validation v;
  v.refuse(dispatch(v.no_rule, workload(64), {v.x, v.y, kCount, kMask}),
           "The kernel \"xor_bytes\" has no launch rule; it takes a grid and not a workload.",
           "dispatch of \"xor_bytes\"");
}

TEST_CASE("A stated order names earlier commands alone", "[model]") {
  const Validation v;
  v.refuse({fill(v.x, 0), fill(v.y, 0).after({1})},
           "The command states that it follows commands[1], which is not earlier than its own position 1.",
           {"validating commands[1], fill"});
  v.refuse({fill(v.x, 0), fill(v.y, 0).after({0}), v.test.xor_of(v.x, v.y, 1).label("last").after({0, 7})},
           "The command states that it follows commands[7], which is not earlier than its own position 2.",
           {"validating commands[2], dispatch of \"xor_bytes\" labelled \"last\""});
}

TEST_CASE("The first violation is the one that is told", "[model][S19]") {
  const Validation v;
  const TensorRegion bad_input{v.of_another_session(v.x), kBytes};
  const TensorRegion bad_output = v.w;
  const Command bad_fill = fill(v.w, 0);
  const Command bad_dispatch = dispatch(v.test.xor_bytes, grid(0), {v.x});
  const auto first = [&](std::vector<TensorRegion> inputs, std::vector<TensorRegion> outputs,
                         std::vector<Command> commands) {
    return v.refused({std::move(inputs), std::move(outputs), std::move(commands), {}}).contexts().at(0);
  };
  CHECK(first({v.y, bad_input}, {bad_output}, {bad_fill, bad_dispatch}) == "validating inputs[1]");
  CHECK(first({v.y}, {bad_output}, {bad_fill, bad_dispatch}) == "validating outputs[0]");
  CHECK(first({v.y}, {}, {fill(v.x, 0), bad_fill, bad_dispatch}) == "validating commands[1], fill");
  CHECK(first({}, {}, {bad_dispatch, bad_fill}) == "validating commands[0], dispatch of \"xor_bytes\"");
}

TEST_CASE("Within a dispatch the rules are told in their order", "[model][S19]") {
  const Validation v;
  KernelId foreign = v.test.xor_bytes;
  foreign.session += 1000000;
  // Each call breaks the rule that it is refused for and all later ones.
  const Region misaligned = v.n.slice(1, 4);
  v.refuse(dispatch(foreign, grid(0), {v.of_another_session(v.x)}), v.foreign("kernel"), "dispatch");
  const std::string x = "argument 0 (\"x\")";
  v.refuse_bound(dispatch(v.test.increment, grid(0), {v.of_another_session(v.w).write()}), v.foreign("region"), x,
                 "increment");
  v.refuse_bound(dispatch(v.test.increment, grid(0), {v.w.slice(1, 0).write()}),
                 "The kernel writes the weight \"w\", which is immutable.", x, "increment");
  v.refuse_bound(dispatch(v.test.increment, grid(0), {v.n.slice(1, 0).read()}),
                 "A region of allocation \"n\" is bound with 0 bytes.", x, "increment");
  v.refuse(dispatch(v.test.increment, grid(0), {misaligned.read()}),
           "The call has 1 arguments; the kernel has 2 parameters.", "dispatch of \"increment\"");
  v.refuse(dispatch(v.test.increment, grid(0), {misaligned.read(), misaligned}),
           "The argument 1 (\"amount\") is a region; the kernel takes a scalar there.", "dispatch of \"increment\"");
  v.refuse(dispatch(v.test.increment, grid(0, 65536), {misaligned.read(), std::uint64_t{1}}),
           "The grid is (0,65536,1); no axis may be 0.", "dispatch of \"increment\"");
  v.refuse(dispatch(v.test.increment, grid(1, 65536), {misaligned.read(), std::uint64_t{1}}),
           "The argument 0 (\"x\") is bound as read; the kernel's spec says read_write.", "dispatch of \"increment\"");
  v.refuse(dispatch(v.test.increment, grid(1, 65536), {misaligned, std::uint64_t{1}}),
           "The argument 1 (\"amount\") has 8 bytes; the kernel was compiled for 4.", "dispatch of \"increment\"");
  v.refuse(dispatch(v.test.increment, grid(1, 65536), {misaligned, std::uint32_t{1}}),
           "The argument 0 (\"x\") starts at byte 1 of its allocation; the kernel needs a multiple of 4.",
           "dispatch of \"increment\"");
  v.refuse(dispatch(v.shared, grid(2147483648, 65536, 65536), {v.x, v.y, kCount, kMask}),
           "The grid's x is 2147483648; the device allows 2147483647.", "dispatch of \"xor_bytes\"");
  v.refuse(dispatch(v.shared, grid(1, 65536, 65536), {v.x, v.y, kCount, kMask}),
           "The grid's y is 65536; the device allows 65535.", "dispatch of \"xor_bytes\"");
}

TEST_CASE("A fragment outlives the session and the definition and the caller's lists", "[model][S41]") {
  const auto make = [] {
    auto model = std::make_unique<XorModel>(kCount, kMask);
    const ModelFragment fragment = model->fragment;
    model.reset();
    return fragment;
  };
  const ModelFragment fragment = make();
  PreparedModel prepared = fragment.prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  CHECK(infer(prepared, input) == xored(input, kMask));
}

TEST_CASE("A launch config is what the kernel's rule makes of a workload", "[model][S11][S12][S13]") {
  const Validation v;
  const std::vector<std::uint64_t> words{1000};
  CHECK(v.model.launch_config(v.test.xor_bytes, words) == LaunchConfig{grid(4), 0});
  const auto check_refused = [&](KernelId kernel, const std::string& sentence) {
    const Error error = check_refusal_changes_nothing([&] { return ModelState(v.model.context()); },
                                                      [&] { static_cast<void>(v.model.launch_config(kernel, words)); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
  };
  KernelId kernel = v.test.xor_bytes;
  kernel.index = 99;
  check_refused(kernel, "The kernel has index 99; the definition has 11 kernels.");
  kernel.session += 1000000;
  check_refused(kernel, v.foreign("kernel"));
  check_refused(v.no_rule, "The kernel \"xor_bytes\" has no launch rule; it takes a grid and not a workload.");
}

}  // namespace weft::test
