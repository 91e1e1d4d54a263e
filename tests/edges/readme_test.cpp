// The README's example as it stands there: the build takes it out of README.md.

#include "catch.h"
#include "readme_includes.inc"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

TEST_CASE("The example of the README runs as it stands", "[edges][docs][cuda-only]") {
  const std::string path = WEFT_TEST_DATA "/digits.safetensors";
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const std::vector<float> images(32 * 64, 0.5f);
  std::vector<float> result;
  const auto use = [&](std::span<const float> values) { result.assign(values.begin(), values.end()); };

#include "readme_body.inc"

  CHECK(result.size() == 32 * 128);
  CHECK(std::ranges::all_of(result, [](float value) { return value >= 0.0f; }));
  CHECK(std::ranges::any_of(result, [](float value) { return value > 0.0f; }));
}
