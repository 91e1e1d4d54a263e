#include "catch.h"
#include <weft/plan/topology.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <string>

using namespace weft;
using namespace weft::test;

namespace {

Topology example() {
  Topology topology;
  topology.title = "digits";
  topology.slots = 4;
  topology.requested_bytes = 12288;
  topology.reserved_bytes = 12544;
  topology.allocations = {{AllocationKind::weight, "w", 100, {}},
                          {AllocationKind::input, "x", 8192, 0},
                          {AllocationKind::output, "y", 4096, 8192}};
  topology.nodes = {
      {NodeKind::own, OwnRole::copy_in, "x", CopyDetail{8192}, {{1, 0, 8192, Access::write}}},
      {NodeKind::fill, {}, "clear", FillDetail{4096, 0xAB}, {{2, 0, 4096, Access::write}}},
      {NodeKind::dispatch,
       {},
       "fc1",
       KernelDetail{"weft_linear_f32", {2, 1, 1}, {256, 1, 1}, 1024},
       {{1, 0, 8192, Access::read}, {0, 0, 100, Access::read}, {2, 0, 4096, Access::read_write}}},
      {NodeKind::own, OwnRole::completion, "done", KernelDetail{"weft_complete", {1, 1, 1}, {1, 1, 1}, 0}, {}}};
  topology.edges = {
      {2, 3, {}},
      {1, 2, {{HazardKind::read_after_write, 2, 0, 4096}, {HazardKind::write_after_write, 2, 0, 4096}, {}}},
      {0, 2, {{HazardKind::read_after_write, 1, 0, 8192}}}};
  return topology;
}

/// A fill with that label, on an allocation with that label.
Topology labelled(const std::string& label) {
  Topology topology;
  topology.title = label;
  topology.allocations = {{AllocationKind::scratch, label, 8, 0}};
  topology.nodes = {{NodeKind::fill, {}, label, FillDetail{8, 0}, {{0, 0, 8, Access::write}}},
                    {NodeKind::fill, {}, label, FillDetail{8, 1}, {{0, 0, 8, Access::write}}}};
  topology.edges = {{0, 1, {{HazardKind::write_after_write, 0, 0, 8}}}};
  return topology;
}

std::string line(const std::string& text, std::size_t number) {
  std::size_t begin = 0;
  for (; number > 0; --number) begin = text.find('\n', begin) + 1;
  return text.substr(begin, text.find('\n', begin) - begin);
}

}  // namespace

TEST_CASE("A topology prints itself as text", "[plan]") {
  CHECK(
      to_text(example()) ==
      R"(graph "digits": 1 fill, 1 dispatch, 2 own nodes, 3 edges, parallel, 4 slots, 12288 bytes requested, 12544 reserved
a0 weight "w" 100 bytes
a1 input "x" 8192 bytes at 0
a2 output "y" 4096 bytes at 8192
n0 own copy-in "x" 8192 bytes
n1 fill "clear" 4096 bytes value 0xAB
n2 dispatch "fc1" weft_linear_f32 grid(2,1,1) block(256,1,1) shared(1024) <- n0 [raw "x" 0..8192], n1 [raw "y" 0..4096; waw "y" 0..4096; stated]
n3 own completion "done" weft_complete grid(1,1,1) block(1,1,1) <- n2
)");
}

TEST_CASE("A topology prints itself as DOT", "[plan]") {
  CHECK(to_dot(example()) == R"dot(digraph "digits" {
  node [shape=box fontname=monospace];
  n0 [label="n0 own copy-in \"x\" 8192 bytes" style=dashed];
  n1 [label="n1 fill \"clear\" 4096 bytes value 0xAB"];
  n2 [label="n2 dispatch \"fc1\" weft_linear_f32 grid(2,1,1) block(256,1,1) shared(1024)"];
  n3 [label="n3 own completion \"done\" weft_complete grid(1,1,1) block(1,1,1)" style=dashed];
  n0 -> n2 [label="raw \"x\" 0..8192"];
  n1 -> n2 [label="raw \"y\" 0..4096\nwaw \"y\" 0..4096\nstated"];
  n2 -> n3 [label=""];
}
)dot");
}

TEST_CASE("A topology prints itself as JSON", "[plan]") {
  const std::string text = to_json(example());
  const nlohmann::ordered_json json = nlohmann::ordered_json::parse(text);
  CHECK(json.dump(2) + '\n' == text);
  CHECK(json.dump() ==
        R"({"title":"digits","order":"parallel","slots":4,)"
        R"("counts":{"fills":1,"dispatches":1,"own":2,"edges":3,"redundant_edges":0},)"
        R"("memory":{"requested_bytes":12288,"reserved_bytes":12544},)"
        R"("allocations":[{"id":0,"kind":"weight","label":"w","bytes":100},)"
        R"({"id":1,"kind":"input","label":"x","bytes":8192,"offset":0},)"
        R"({"id":2,"kind":"output","label":"y","bytes":4096,"offset":8192}],)"
        R"("nodes":[{"id":0,"kind":"own","role":"copy-in","label":"x","copy":{"bytes":8192},)"
        R"("uses":[{"allocation":1,"label":"x","begin":0,"end":8192,"access":"write"}]},)"
        R"({"id":1,"kind":"fill","label":"clear","fill":{"bytes":4096,"value":171},)"
        R"("uses":[{"allocation":2,"label":"y","begin":0,"end":4096,"access":"write"}]},)"
        R"({"id":2,"kind":"dispatch","label":"fc1",)"
        R"("kernel":{"symbol":"weft_linear_f32","grid":[2,1,1],"block":[256,1,1],"shared_bytes":1024},)"
        R"("uses":[{"allocation":1,"label":"x","begin":0,"end":8192,"access":"read"},)"
        R"({"allocation":0,"label":"w","begin":0,"end":100,"access":"read"},)"
        R"({"allocation":2,"label":"y","begin":0,"end":4096,"access":"read_write"}]},)"
        R"({"id":3,"kind":"own","role":"completion","label":"done",)"
        R"("kernel":{"symbol":"weft_complete","grid":[1,1,1],"block":[1,1,1],"shared_bytes":0},"uses":[]}],)"
        R"("edges":[{"from":0,"to":2,"reasons":[{"kind":"raw","allocation":1,"label":"x","begin":0,"end":8192}]},)"
        R"({"from":1,"to":2,"reasons":[{"kind":"raw","allocation":2,"label":"y","begin":0,"end":4096},)"
        R"({"kind":"waw","allocation":2,"label":"y","begin":0,"end":4096},{"kind":"stated"}]},)"
        R"({"from":2,"to":3,"reasons":[]}]})");
}

TEST_CASE("The order in which edges are listed does not change what is printed", "[plan]") {
  const Topology topology = example();
  Topology reversed = example();
  std::reverse(reversed.edges.begin(), reversed.edges.end());
  CHECK(to_text(reversed) == to_text(topology));
  CHECK(to_dot(reversed) == to_dot(topology));
  CHECK(to_json(reversed) == to_json(topology));
}

TEST_CASE("Labels are escaped in text", "[plan]") {
  const auto node = [](const std::string& label) { return line(to_text(labelled(label)), 2); };
  CHECK(node("say \"hi\"\\") == R"(n0 fill "say \"hi\"\\" 8 bytes value 0x00)");
  CHECK(node("two\nlines\tand\r\x01\x7F") == R"(n0 fill "two\nlines\tand\x0D\x01\x7F" 8 bytes value 0x00)");
  CHECK(node("größe→😀") == R"(n0 fill "größe→😀" 8 bytes value 0x00)");
  CHECK(node(std::string("nul\0byte", 8)) == R"(n0 fill "nul\x00byte" 8 bytes value 0x00)");
}

TEST_CASE("Bytes that are not UTF-8 are escaped in text", "[plan]") {
  const auto shown = [](const std::string& label) { return line(to_text(labelled(label)), 1); };
  CHECK(shown("\xFF") == R"(a0 scratch "\xFF" 8 bytes at 0)");
  CHECK(shown("a\x80z") == R"(a0 scratch "a\x80z" 8 bytes at 0)");
  CHECK(shown("\xC0\xAF") == R"(a0 scratch "\xC0\xAF" 8 bytes at 0)");                  // overlong
  CHECK(shown("\xE0\x80\x80") == R"(a0 scratch "\xE0\x80\x80" 8 bytes at 0)");          // overlong
  CHECK(shown("\xED\xA0\x80") == R"(a0 scratch "\xED\xA0\x80" 8 bytes at 0)");          // surrogate
  CHECK(shown("\xF4\x90\x80\x80") == R"(a0 scratch "\xF4\x90\x80\x80" 8 bytes at 0)");  // beyond U+10FFFF
  CHECK(shown("cut \xE2\x82") == R"(a0 scratch "cut \xE2\x82" 8 bytes at 0)");
  CHECK(shown("\xE2(\xA1") == R"(a0 scratch "\xE2(\xA1" 8 bytes at 0)");
}

TEST_CASE("Labels are escaped once more in DOT", "[plan]") {
  const std::string dot = to_dot(labelled("a\"b\\\n\xFF"));
  CHECK(line(dot, 0) == R"(digraph "a\\\"b\\\\\\n\\xFF" {)");
  CHECK(line(dot, 2) == R"(  n0 [label="n0 fill \"a\\\"b\\\\\\n\\xFF\" 8 bytes value 0x00"];)");
  CHECK(line(dot, 4) == R"(  n0 -> n1 [label="waw \"a\\\"b\\\\\\n\\xFF\" 0..8"];)");
}

TEST_CASE("JSON keeps every label that is UTF-8 and replaces other bytes", "[plan]") {
  const std::string label = "q\" b\\ n\n t\t größe 😀";
  const auto json = nlohmann::json::parse(to_json(labelled(label)));
  CHECK(json["title"] == label);
  CHECK(json["nodes"][0]["label"] == label);
  CHECK(json["edges"][0]["reasons"][0]["label"] == label);
  CHECK(nlohmann::json::parse(to_json(labelled("a\xFFz")))["title"] == "a\xEF\xBF\xBDz");
}

TEST_CASE("An allocation without a label is named by its position", "[plan]") {
  Topology topology = labelled("");
  topology.edges[0].reasons.push_back({HazardKind::write_after_write, 9, 0, 8});
  CHECK(line(to_text(topology), 3) == R"(n1 fill "" 8 bytes value 0x01 <- n0 [waw #0 0..8; waw #9 0..8])");
}

TEST_CASE("Serial order and undecided edges are shown", "[plan]") {
  Topology topology = labelled("x");
  topology.order = Order::serial;
  topology.redundant_edges = 1;
  topology.edges[0].reasons = {{.kind = HazardKind::serial}};
  const std::string text = to_text(topology);
  CHECK(
      line(text, 0) ==
      R"(graph "x": 2 fills, 0 dispatches, 0 own nodes, 1 edge of which 1 may be redundant, serial, 0 slots, 0 bytes requested, 0 reserved)");
  CHECK(line(text, 3) == R"(n1 fill "x" 8 bytes value 0x01 <- n0 [serial])");
  const auto json = nlohmann::json::parse(to_json(topology));
  CHECK(json["order"] == "serial");
  CHECK(json["counts"]["redundant_edges"] == 1);
}

TEST_CASE("An empty topology prints", "[plan]") {
  CHECK(to_text({}) ==
        "graph \"\": 0 fills, 0 dispatches, 0 own nodes, 0 edges, parallel, 0 slots, 0 bytes requested, 0 reserved\n");
  CHECK(nlohmann::json::parse(to_json({}))["nodes"].empty());
}
