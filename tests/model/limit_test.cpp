#include "catch.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

// What stands exactly at a device's limit runs; one beyond it is refused.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;
constexpr std::uint8_t kMask = 0x5a;

/// xor_bytes with blocks of this size, and a model of one dispatch of it.
struct LimitModel {
  explicit LimitModel(Dim3 block) {
    KernelSpec spec = xor_bytes_spec();
    spec.block = block;
    kernel = test.session.load(spec);
  }
  LimitModel() : LimitModel({32, 1, 1}) {}

  TestSession test;
  TypedRegion<std::uint8_t> x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  TypedRegion<std::uint8_t> y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
  KernelId kernel;

  /// Threads beyond the bytes end at once, and those of other rows write the same bytes again.
  void check_runs(const ModelDefinition& model, Grid shape) const {
    PreparedModel prepared =
        model
            .fragment(trusted,
                      {.inputs = {x}, .outputs = {y}, .commands = {dispatch(kernel, shape, {x, y, kCount, kMask})}})
            .prepare();
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, shape.x);
    CHECK(infer(prepared, input) == xored(input, kMask));
  }
};

}  // namespace

TEST_CASE("A grid runs up to its limit on each axis and is refused beyond it", "[model][case17]") {
  LimitModel m;
  const ModelDefinition model = m.test.freeze();
  const auto check_refused = [&](Grid shape, const std::string& sentence) {
    const Error error = refusal([&] {
      static_cast<void>(model.fragment(trusted, {.commands = {dispatch(m.kernel, shape, {m.x, m.y, kCount, kMask})}}));
    });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
    m.check_runs(model, grid(2));
  };
  m.check_runs(model, grid(2, 65535));
  check_refused(grid(1, 65536, 1), "The grid's y is 65536; the device allows 65535.");
  m.check_runs(model, grid(2, 1, 65535));
  check_refused(grid(1, 1, 65536), "The grid's z is 65536; the device allows 65535.");
  check_refused(grid(2147483648), "The grid's x is 2147483648; the device allows 2147483647.");
}

TEST_CASE("A grid of the most blocks on its first axis runs", "[model][case17][long]") {
  LimitModel m;
  const ModelDefinition model = m.test.freeze();
  m.check_runs(model, grid(2147483647));
  m.check_runs(model, grid(2));
}

TEST_CASE("A block runs up to its limit and is refused beyond it", "[model][case17]") {
  LimitModel m({1024, 1, 1});
  const auto check_refused = [&](Dim3 block, const std::string& sentence) {
    KernelSpec spec = xor_bytes_spec();
    spec.block = block;
    const Error error = refusal([&] { static_cast<void>(m.test.session.load(spec)); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
  };
  check_refused({1025, 1, 1}, "The block's x is 1025; it must be between 1 and 1024.");
  check_refused({1, 1, 65}, "The block's z is 65; it must be between 1 and 64.");
  m.check_runs(m.test.freeze(), grid(1));
}

TEST_CASE("A region at any offset is bound where its kernel's alignment allows it", "[model][case20]") {
  TestSession test;
  KernelSpec spec = xor_bytes_spec();
  spec.parameters[0].alignment = 16;
  const KernelId aligned = test.session.load(spec);
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto y = test.session.allocate<std::uint8_t>({16}, {.label = "y"});
  const ModelDefinition model = test.freeze();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  for (const std::uint64_t offset : {0u, 1u, 2u, 4u, 8u, 16u}) {
    INFO("offset " << offset);
    const auto options = [&](KernelId kernel) {
      return FragmentOptions{
          .inputs = {x},
          .outputs = {y},
          .commands = {dispatch(kernel, grid(1), {x.slice(offset, 16), y, std::uint64_t{16}, kMask})}};
    };
    const auto check_right = [&](KernelId kernel) {
      PreparedModel prepared = model.fragment(trusted, options(kernel)).prepare();
      const auto first = input.begin() + static_cast<std::ptrdiff_t>(offset);
      CHECK(infer(prepared, input) == xored({first, first + 16}, kMask));
      // Sub-buffers of an arena satisfy every alignment that a kernel can declare.
      for (const TopologyAllocation& allocation : prepared.topology().allocations)
        CHECK(allocation.offset.value_or(0) % 256 == 0);
    };
    check_right(test.xor_bytes);
    if (offset % 16 == 0) {
      check_right(aligned);
    } else {
      const Error error = refusal([&] { static_cast<void>(model.fragment(trusted, options(aligned))); });
      CHECK(error.code() == ErrorCode::invalid);
      CHECK(error.sentence() == "The argument 0 (\"x\") starts at byte " + std::to_string(offset) +
                                    " of its allocation; the kernel needs a multiple of 16.");
    }
  }
}

}  // namespace weft::test
