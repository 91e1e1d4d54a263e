#include "catch.h"
#include "digits/serve.h"
#include "tools/digits_folder.h"
#include "tools/program.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

using namespace weft::test;
using weft::digits::Rotation;

const std::string kData = WEFT_TEST_DATA;

ProgramResult run_digits(const std::string& data, std::vector<std::string> options = {}) {
  options.insert(options.end(), {"--data", data, "--device", device_argument()});
  if (std::ranges::find(options, "--requests") == options.end()) options.insert(options.end(), {"--requests", "1"});
  return run_program("weft-digits", options);
}

/// The last line as it is promised, with these counts.
std::regex last_line(const std::string& correct, const std::string& slots) {
  return std::regex("correct " + correct + R"(  max \|logit error\| \d\.\de[+-]\d\d  device .+  slots )" + slots +
                    R"(  p50 \d+\.\d us  p99 \d+\.\d us)");
}

void require_answers(const ProgramResult& result, const std::string& correct, const std::string& slots) {
  INFO(result.output << result.errors);
  REQUIRE(result.status == 0);
  REQUIRE(std::regex_match(result.last_line(), last_line(correct, slots)));
}

void require_refusal(const ProgramResult& result, const std::string& sentence) {
  INFO(result.output << result.errors);
  REQUIRE(result.status == 2);
  REQUIRE(result.errors.starts_with("weft-digits: "));
  REQUIRE(contains(result.errors, sentence));
  REQUIRE_FALSE(contains(result.output, "correct "));
}

}  // namespace

TEST_CASE("The demo classifies 495 of 500 digits", "[tools][digits]") {
  const ProgramResult result = run_digits(kData, {"--requests", "64"});
  require_answers(result, "495/500", "4");
  CHECK(contains(result.output, "64-128-64-10"));
  CHECK(std::regex_search(result.output, std::regex("memset nodes +1\n")));
  CHECK(std::regex_search(result.output, std::regex("kernel nodes +3\n")));
  CHECK(contains(result.output, "(64 requests, every answer checked)"));
}

TEST_CASE("The demo serves any batch with any number of slots", "[tools][digits]") {
  require_answers(run_digits(kData, {"--batch", "7", "--slots", "1"}), "495/500", "1");
  require_answers(run_digits(kData, {"--batch", "1", "--slots", "3"}), "495/500", "3");
  require_answers(run_digits(kData, {"--batch", "512"}), "495/500", "4");
}

TEST_CASE("The demo takes a model of odd widths", "[tools][digits]") {
  const ProgramResult result = run_digits(kData + "/odd");
  require_answers(result, "53/53", "4");
  CHECK(contains(result.output, "63-101-37-7"));
}

TEST_CASE("The demo takes a test set smaller than a batch", "[tools][digits]") {
  require_answers(run_digits(DigitsFolder({3, 5, 4, 2}, 1).write()), "1/1", "4");
  require_answers(run_digits(DigitsFolder({1, 1, 1, 1}, 31).write()), "31/31", "4");
}

TEST_CASE("The demo counts by labels and fails by logits", "[tools][digits]") {
  DigitsFolder folder({3, 5, 4, 2}, 2);
  SECTION("a wrong label is counted") {
    folder.tests("labels") = file_tensor("labels", {2}, std::vector<std::int32_t>{0, 0});
    const ProgramResult zeros = run_digits(folder.write());
    folder.tests("labels") = file_tensor("labels", {2}, std::vector<std::int32_t>{1, 1});
    const ProgramResult ones = run_digits(folder.write());
    CHECK(zeros.status == 0);
    CHECK(ones.status == 0);
    CHECK(zeros.last_line().substr(0, 11) != ones.last_line().substr(0, 11));
  }
  SECTION("a logit beyond the tolerance is status 1") {
    folder.tests("logits") = file_tensor("logits", {2, 2}, std::vector<float>{9, 9, 9, 9});
    const ProgramResult result = run_digits(folder.write());
    CHECK(result.status == 1);
    CHECK(contains(result.errors, "A logit is off by"));
    CHECK(contains(result.last_line(), "max |logit error|"));
  }
}

TEST_CASE("The demo refuses a folder that holds no model", "[tools][digits]") {
  const TemporaryFolder empty;
  require_refusal(run_digits(empty.path().string()), "digits.safetensors");
}

TEST_CASE("The demo refuses files that contradict each other", "[tools][digits]") {
  DigitsFolder folder({3, 5, 4, 2}, 2);
  SECTION("a layer that does not take what the one before gives") {
    folder.model("fc2.weight") = file_tensor("fc2.weight", {5, 4}, std::vector<float>(20));
    folder.model("fc2.bias") = file_tensor("fc2.bias", {5}, std::vector<float>(5));
    require_refusal(run_digits(folder.write()), "fc2.weight has 4 columns, and fc1 gives 5 values.");
  }
  SECTION("a bias of another length than its layer") {
    folder.model("fc1.bias") = file_tensor("fc1.bias", {6}, std::vector<float>(6));
    require_refusal(run_digits(folder.write()), "fc1.bias has 6 elements, and fc1.weight has 5 rows.");
  }
  SECTION("weights of another type") {
    folder.model("fc3.bias") = file_tensor("fc3.bias", {2}, std::vector<std::int32_t>(2));
    require_refusal(run_digits(folder.write()), "fc3.bias is i32[2]");
  }
  SECTION("images of another width than the model's") {
    folder.tests("images") = file_tensor("images", {2, 4}, std::vector<float>(8));
    require_refusal(run_digits(folder.write()), "images has shape [2,4]; the model and the images ask for [2,3].");
  }
  SECTION("fewer labels than images") {
    folder.tests("labels") = file_tensor("labels", {1}, std::vector<std::int32_t>(1));
    require_refusal(run_digits(folder.write()), "labels has shape [1]");
  }
  SECTION("a label that is no class") {
    folder.tests("labels") = file_tensor("labels", {2}, std::vector<std::int32_t>{0, 2});
    require_refusal(run_digits(folder.write()), "labels[1] is 2; the model has classes 0 to 1.");
  }
  SECTION("a negative label") {
    folder.tests("labels") = file_tensor("labels", {2}, std::vector<std::int32_t>{-1, 0});
    require_refusal(run_digits(folder.write()), "labels[0] is -1");
  }
  SECTION("logits that are no numbers") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    folder.tests("logits") = file_tensor("logits", {2, 2}, std::vector<float>{0, nan, 0, 0});
    require_refusal(run_digits(folder.write()), "Element 1 of logits is nan; all are finite.");
  }
  SECTION("no images at all") {
    folder.tests("images") = file_tensor("images", {0, 3}, std::vector<float>{});
    require_refusal(run_digits(folder.write()), "images is f32[0,3]; each dimension is from 1 to 2^32 - 1.");
  }
}

TEST_CASE("The demo refuses options that make no sense", "[tools][digits]") {
  require_refusal(run_digits(kData, {"--slots", "0"}), "--slots");
  require_refusal(run_digits(kData, {"--batch", "0"}), "The batch is 0");
  require_refusal(run_digits(kData, {"--slots", "-1"}), "--slots");
  require_refusal(run_digits(kData, {"--colour"}), "--colour");
  require_refusal(run_program("weft-digits", {"--device", "tpu"}), "tpu");
}

TEST_CASE("The demo says what an automatic device is", "[tools][digits]") {
  const ProgramResult result =
      run_program("weft-digits", {"--device", "auto", "--data", kData + "/odd", "--requests", "1"});
  REQUIRE(result.status == 0);
  CHECK(contains(result.errors, "weft-digits: --device auto takes "));
}

TEST_CASE("Every pass of a rotation carries each image once and begins one image later", "[tools][digits]") {
  for (const std::size_t batch : {1u, 3u, 7u, 10u, 32u}) {
    const Rotation rotation(10, batch);
    REQUIRE(rotation.requests_per_pass() == (10 + batch - 1) / batch);
    for (std::size_t pass = 0; pass < 12; ++pass) {
      std::multiset<std::size_t> rows;
      for (std::size_t i = 0; i < rotation.requests_per_pass(); ++i) {
        const std::size_t request = pass * rotation.requests_per_pass() + i;
        REQUIRE(rotation.is_first_pass(request) == (pass == 0));
        for (std::size_t image = 0; image < rotation.count(request); ++image) rows.insert(rotation.row(request, image));
      }
      REQUIRE(rows == std::multiset<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
      REQUIRE(rotation.row(pass * rotation.requests_per_pass(), 0) == pass % 10);
    }
  }
}
