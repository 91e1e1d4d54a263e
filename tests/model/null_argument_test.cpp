#include "catch.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include "support/pointer_telling_device.h"
#include <weft/weft.h>

#include <cstdint>
#include <memory>

// Kernels whose code takes a pointer that their spec binds nothing to, as a compiler's hidden scratch is.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

}  // namespace

TEST_CASE("A scalar where the code takes a pointer can be null alone", "[model][S34]") {
  const ScopedDevice scoped(test_device(), std::make_shared<PointerTellingDevice>(open_device(test_device())));
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const auto d = test.session.allocate<std::int64_t>({1}, {.label = "d"});
  const auto kernel = test.digest;
  const ModelDefinition definition = test.freeze();
  const auto with_salt = [&](std::uint64_t salt) {
    return definition.fragment(trusted,
                               {.inputs = {x}, .outputs = {d}, .commands = {kernel(grid(1), x, d, kCount, salt)}});
  };
  const Error error = refusal([&] { static_cast<void>(with_salt(0x7f0000000000)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() ==
        "The argument 3 (\"salt\") is not null; the compiled kernel takes a pointer there and the spec "
        "binds no region to it.");

  PreparedModel prepared = with_salt(0).prepare();
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  Inference run = submit(prepared, input);
  REQUIRE(run.wait(in_a_minute()));
  CHECK(run.output<std::int64_t>(0)[0] == digest_of(input, 0, 0));
}

}  // namespace weft::test
