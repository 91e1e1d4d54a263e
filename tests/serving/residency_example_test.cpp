// The examples of docs/residency.md as they stand there: the build takes them out of it.

#include "catch.h"
#include "residency_includes.inc"
#include "support/deadlines.h"
#include "support/device.h"
#include "support/model_fixture.h"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

struct Tokenizer {};

}  // namespace

TEST_CASE("The examples of the page on residency run as they stand", "[serving][docs]") {
  const Device device = test_device();
  const Deadline deadline = in_a_minute();
  const std::vector<std::uint8_t> weights(1000, 42);
  const auto read_weights = [&](const std::string&) {
    return HostTensor{TensorDesc(DType::u8, {1000}), std::as_bytes(std::span(weights)), "w"};
  };
  int served = 0;
  const auto serve = [&](const PreparedModel& model) {
    PreparedModel handle = model;
    static_cast<void>(infer(handle, {}));
    ++served;
  };
  int reported = 0;
  const auto report = [&](std::string_view, const std::string&, const std::string&) { ++reported; };

  TestSession test;
  const auto output = test.session.allocate<std::uint8_t>({16});
  const ModelDefinition definition = test.freeze();
  const ModelFragment fragment = definition.fragment(trusted, {.outputs = {output}, .commands = {fill(output, 1)}});
  const ModelFragment retrained = definition.fragment(trusted, {.outputs = {output}, .commands = {fill(output, 2)}});

#include "residency_body.inc"

  CHECK(served == 2);
  CHECK(reported == 3);
  CHECK(models.statistics().units == 2);
}

}  // namespace weft::test
