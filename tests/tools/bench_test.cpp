#include "catch.h"
#include "exchange.h"
#include "measure.h"
#include "report.h"
#include "runner.h"
#include "support/device.h"
#include "tools/program.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <deque>
#include <limits>
#include <span>
#include <sstream>
#include <string>
#include <vector>

namespace {

using namespace weft::bench;
using namespace weft::test;

/// Answers with what it was asked, but for one request.
class Echo final : public Runner {
 public:
  explicit Echo(std::size_t wrong) : wrong_(wrong) {}

  std::span<float> acquire() override { return running_.emplace_back(); }
  void submit() override {
    if (submitted_++ == wrong_) running_.back()[1] += 1;
    most_ = std::max(most_, running_.size());
  }
  std::span<const float> wait() override { return running_.front(); }
  void release() override { running_.pop_front(); }

  [[nodiscard]] std::size_t submitted() const { return submitted_; }
  [[nodiscard]] std::size_t most_in_flight() const { return most_; }

 private:
  std::size_t wrong_;
  std::deque<std::array<float, 2>> running_;
  std::size_t submitted_ = 0;
  std::size_t most_ = 0;
};

Exchange echo_exchange() {
  Exchange exchange(2, 2, 0);
  for (int i = 0; i < 3; ++i) {
    const std::array values{static_cast<float>(i), static_cast<float>(-i)};
    exchange.add(values, values);
  }
  return exchange;
}

constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

Sample sample(double value) { return Sample(kRequestFigures.size(), value); }

std::vector<nlohmann::json> parse_lines(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

}  // namespace

TEST_CASE("A side is measured with as many requests in flight as it has slots", "[tools][bench]") {
  Echo echo(kNone);
  const Exchange exchange = echo_exchange();
  const Sample result = Meter("echo", echo, exchange).measure({4, 20, 50});
  CHECK(echo.submitted() == 3 + 20 + 50);
  CHECK(echo.most_in_flight() == 4);
  CHECK(result.back() > 0);
}

TEST_CASE("A wrong answer ends the measurement", "[tools][bench]") {
  const Exchange exchange = echo_exchange();
  for (const std::size_t wrong : {0u, 2u, 22u, 23u, 72u}) {
    Echo echo(wrong);
    Meter meter("echo", echo, exchange);
    const weft::Error error = refusal([&] { (void)meter.measure({4, 20, 50}); });
    CHECK(error.code() == weft::ErrorCode::failed);
    CHECK(contains(error.what(), "The answer of echo to request " + std::to_string(wrong) + " is wrong"));
  }
}

TEST_CASE("An answer matches within the tolerance and never when it is not a number", "[tools][bench]") {
  Exchange exchange(1, 2, 0.5f);
  exchange.add(std::array{0.0f}, std::array{1.0f, 2.0f});
  CHECK(exchange.matches(0, std::array{1.25f, 1.75f}));
  CHECK_FALSE(exchange.matches(0, std::array{1.0f, 2.75f}));
  CHECK_FALSE(exchange.matches(0, std::array{std::numeric_limits<float>::quiet_NaN(), 2.0f}));
}

TEST_CASE("A report takes the ratio of each repetition by itself", "[tools][bench]") {
  const Report report{.work = "line",
                      .parameters = {{"nodes", 1}},
                      .machine = {{"gpu", "a GPU"}},
                      .weft = {sample(10), sample(30), sample(50)},
                      .raw = {sample(5), sample(20), sample(50)}};
  const auto lines = parse_lines(to_json_lines(report));
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].at("side") == "weft");
  CHECK(lines[0].at("nodes") == 1);
  CHECK(lines[0].at("gpu") == "a GPU");
  CHECK(lines[0].at("latency_p50_us").at("median") == 30);
  CHECK(lines[0].at("throughput_requests_per_s").at("min") == 10);
  CHECK(lines[1].at("side") == "raw");
  CHECK(lines[1].at("latency_p50_us").at("max") == 50);
  CHECK(lines[2].at("side") == "weft/raw");
  CHECK(lines[2].at("latency_p50_ratio").at("median") == 1.5);
  CHECK(contains(to_text(report), "1.500 (1.000..2.000)"));
}

TEST_CASE("A report of the host device names no figure as a GPU's", "[tools][bench]") {
  const Report report{.work = "line", .parameters = {}, .machine = {}, .weft = {sample(2), sample(4)}, .raw = {}};
  const auto lines = parse_lines(to_json_lines(report));
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].at("host_latency_p50_us").at("median") == 3);
  for (const auto& [key, value] : lines[0].items()) CHECK((!value.is_object() || key.starts_with("host_")));
  CHECK(contains(to_text(report), "3.00 (2.00..4.00) on the host device (not a GPU)"));
  CHECK_FALSE(contains(to_text(report), "weft/raw"));
}

TEST_CASE("The bench runs every work and appends JSON lines", "[tools][bench]") {
  const TemporaryFolder folder;
  const std::string json = (folder.path() / "figures.json").string();
  const std::vector<std::string> common{"--device", device_argument(), "--slots", "3",      "--repetitions",
                                        "2",        "--requests",      "3",       "--json", json};
  for (std::vector<std::string> work : {std::vector<std::string>{"line", "--nodes", "5"},
                                        {"prepare", "--nodes", "5"},
                                        {"digits", "--batch", "4", "--data", WEFT_TEST_DATA}}) {
    work.insert(work.end(), common.begin(), common.end());
    const ProgramResult result = run_program("weft-bench", work);
    INFO(result.output << result.errors);
    REQUIRE(result.status == 0);
    CHECK(contains(result.output, on_cuda() ? "weft/raw" : "host device (not a GPU)"));
  }
  const auto lines = parse_lines(read_text(json));
  REQUIRE(lines.size() == (on_cuda() ? 9 : 3));
  CHECK(lines.front().at("work") == "line");
  if (!on_cuda()) CHECK(lines.front().at("device") == "host device (not a GPU)");
  CHECK(lines.front().at("bytes_in") == 4096);
  const auto& prepared = lines[on_cuda() ? 3 : 1];
  CHECK(prepared.at("work") == "prepare");
  CHECK(prepared.at(on_cuda() ? "prepare_wall_us" : "host_prepare_wall_us").at("median") > 0);
  CHECK(lines.back().at("work") == "digits");
  CHECK(lines.back().at("bytes_out") == 4 * 10 * 4);
}

TEST_CASE("The bench refuses what it cannot measure", "[tools][bench]") {
  const std::vector<std::vector<std::string>> refused{{"squares"},
                                                      {"line", "--nodes", "0"},
                                                      {"digits", "--batch", "0"},
                                                      {"line", "--slots", "0"},
                                                      {"line", "--repetitions", "0"},
                                                      {"digits", "--data", "/nonexistent"}};
  for (std::vector<std::string> arguments : refused) {
    arguments.insert(arguments.end(), {"--device", device_argument(), "--requests", "1"});
    if (arguments[0] == "digits" && arguments[1] == "--batch")
      arguments.insert(arguments.end(), {"--data", WEFT_TEST_DATA});
    const ProgramResult result = run_program("weft-bench", arguments);
    INFO(arguments[0] << " " << result.output << result.errors);
    CHECK(result.status == 2);
    CHECK(result.output.empty());
    CHECK(result.errors.starts_with("weft-bench: "));
  }
}
