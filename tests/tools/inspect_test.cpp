#include "catch.h"
#include "tools/program.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>
#include <vector>

namespace {

using namespace weft::test;

ProgramResult inspect(std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--device", device_argument()});
  return run_program("weft-inspect", arguments);
}

}  // namespace

TEST_CASE("Inspect lists its examples", "[tools][inspect]") {
  const ProgramResult result = inspect({"list"});
  REQUIRE(result.status == 0);
  CHECK(result.output.starts_with("example:digits  "));
}

TEST_CASE("Inspect shows a graph as text", "[tools][inspect]") {
  const ProgramResult result = inspect({"example:digits", "--slots", "2"});
  INFO(result.output << result.errors);
  REQUIRE(result.status == 0);
  CHECK(result.output.starts_with("graph \"digits\": 1 fill, 3 dispatches, 2 own nodes, "));
  CHECK(contains(result.output, "2 slots"));
  CHECK(contains(result.output, "dispatch \"fc3\" weft_linear_split_f32"));
}

TEST_CASE("Programs tell what weft logs on the error stream when they are asked to", "[tools][inspect][R38]") {
  const std::vector<std::string> arguments{"example:digits", "--format", "json"};
  const ProgramResult quiet = inspect(arguments);
  REQUIRE(quiet.status == 0);
  CHECK(quiet.errors.empty());
  std::vector<std::string> asked = arguments;
  asked.emplace_back("--verbose");
  const ProgramResult verbose = inspect(asked);
  REQUIRE(verbose.status == 0);
  CHECK(contains(verbose.errors, "weft-inspect: A context of "));
  CHECK(verbose.output == quiet.output);
}

TEST_CASE("Inspect shows a graph as DOT", "[tools][inspect]") {
  const ProgramResult result = inspect({"example:digits", "--format", "dot"});
  REQUIRE(result.status == 0);
  CHECK(result.output.starts_with("digraph"));
  CHECK(std::ranges::count(result.output, '{') == std::ranges::count(result.output, '}'));
}

TEST_CASE("Inspect shows a graph as JSON", "[tools][inspect]") {
  const ProgramResult result = inspect({"example:digits", "--format", "json", "--batch", "5"});
  REQUIRE(result.status == 0);
  const nlohmann::json graph = nlohmann::json::parse(result.output);
  CHECK(graph.at("counts").at("fills") == 1);
  CHECK(graph.at("counts").at("dispatches") == 3);
  CHECK(graph.at("slots") == 4);
  const auto& allocations = graph.at("allocations");
  const auto images = std::ranges::find_if(allocations, [](const auto& a) { return a.at("label") == "images"; });
  REQUIRE(images != allocations.end());
  CHECK(images->at("bytes") == 5 * 64 * 4);
}

TEST_CASE("Inspect names what there is when it is asked for something else", "[tools][inspect]") {
  const ProgramResult example = inspect({"example:letters"});
  CHECK(example.status == 2);
  CHECK(contains(example.errors, "There is no example \"letters\"; there is \"digits\"."));
  const ProgramResult format = inspect({"example:digits", "--format", "yaml"});
  CHECK(format.status == 2);
  CHECK(contains(format.errors, "There is no format \"yaml\"; there is \"text\", \"dot\", \"json\"."));
  const ProgramResult target = inspect({"digits"});
  CHECK(target.status == 2);
  CHECK(contains(target.errors, "\"digits\" is neither \"list\" nor example:NAME"));
  for (const ProgramResult* result : {&example, &format, &target}) CHECK(result->output.empty());
}
