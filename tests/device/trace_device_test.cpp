#include "device/trace_device.h"

#include "catch.h"
#include "device/seam.h"
#include "support/test_kernels.h"

#include <string>

namespace weft::test {

namespace {

/// A kernel that takes a struct with a pointer inside.
struct Window {
  DeviceAddress start;
  std::uint32_t length;
  std::uint32_t step;
};

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

}  // namespace

TEST_CASE("A trace names memory and handles by their ordinals", "[device]") {
  const auto tracing = std::make_shared<TracingDevice>(open_test_device());
  {
    Seam seam(tracing);
    const SeamKernel xor_bytes_kernel = seam.kernel(xor_bytes_spec());
    const DeviceAddress a = seam.memory(100);
    const DeviceAddress b = seam.memory(200);
    const PinnedMemory p = seam.pinned(64);
    const UniqueGraph graph = seam.graph();
    const NodeHandle fill = seam.add(graph, FillNode{a, 100, 15});
    const NodeHandle flip =
        seam.add(graph, xor_bytes_kernel.node({1}, a + 4, b + 8, std::uint64_t{32}, std::uint8_t{0xff}), {fill});
    seam.add(graph, CopyNode{p.device, b, 64}, {fill, flip});
    UniqueExecutable executable = seam.instantiate(graph);
    check(seam->set_executable_node(executable.get(), fill, FillNode{a + 1, 9, 3}), "set a node");
    check(seam->upload(executable.get(), seam.stream()), "upload");
    seam.run(executable);
    EventHandle event{};
    check(seam->create_event(event), "create an event");
    check(seam->record_event(event, seam.stream()), "record");
    check(seam->wait_event(seam.stream(), event), "wait");
    check(seam->destroy_event(event), "destroy an event");
    CHECK_FALSE(seam->free(seam.stream(), p.device).ok());
    seam.synchronize();
  }
  const std::vector<std::string> expected = {
      "create_stream -> stream 1",
      "load \"test kernels\" -> module 1",
      "find_kernel module 1 xor_bytes",
      "allocate stream 1 bytes 100 -> m1",
      "allocate stream 1 bytes 200 -> m2",
      "allocate_pinned bytes 64 -> p1",
      "create_graph -> graph 1",
      "add_node graph 1 fill m1+0 bytes 100 value 15 -> node 1",
      "add_node graph 1 kernel xor_bytes grid 1,1,1 block 256,1,1 shared 0 "
      "(m1+4, m2+8, 0x0000000000000020, 0xff) after 1 -> node 2",
      "add_node graph 1 copy p1+0 from m2+0 bytes 64 after 1 2 -> node 3",
      "instantiate graph 1 -> executable 1",
      "set_executable_node executable 1 node 1 fill m1+1 bytes 9 value 3",
      "upload executable 1 stream 1",
      "launch executable 1 stream 1",
      "create_event -> event 1",
      "record_event event 1 stream 1",
      "wait_event stream 1 event 1",
      "destroy_event event 1",
  };
  std::vector<std::string> lines = tracing->lines();
  REQUIRE(lines.size() > expected.size());
  // The refused free, by whichever code the device has for it.
  CHECK(lines[expected.size()].starts_with("free stream 1 p1+0 -> "));
  const std::vector<std::string> rest(lines.begin() + static_cast<std::ptrdiff_t>(expected.size()) + 1, lines.end());
  lines.resize(expected.size());
  CHECK(joined(lines) == joined(expected));
  CHECK(joined(rest) ==
        "destroy_executable executable 1\n"
        "destroy_graph graph 1\n"
        "free stream 1 m1+0\n"
        "free stream 1 m2+0\n"
        "free_pinned p1+0\n"
        "unload module 1\n"
        "destroy_stream stream 1\n");
}

TEST_CASE("A trace finds the pointers inside a struct", "[device][host-only]") {
  const auto tracing = std::make_shared<TracingDevice>(open_test_device());
  Seam seam(tracing);
  KernelSpec spec;
  spec.symbol = "windowed";
  spec.parameters = {{.kind = ParameterKind::bytes, .size = sizeof(Window)}};
  spec.block = {32, 1, 1};
  const SeamKernel kernel = seam.kernel(spec);
  const UniqueGraph graph = seam.graph();
  seam.add(graph, kernel.node({2}, Window{seam.memory(64) + 16, 3, 1}));
  CHECK(contains(tracing->lines().back(), "({m1+16 0x0000000100000003})"));
}

TEST_CASE("A trace shows pageable memory as host", "[device]") {
  const auto tracing = std::make_shared<TracingDevice>(open_test_device());
  Seam seam(tracing);
  static_cast<void>(seam.memory_of(std::vector<std::uint32_t>{1, 2}));
  CHECK(tracing->lines().back() == "copy stream 1 m1+0 from host bytes 8");
}

TEST_CASE("A trace names a cluster and cooperation where a launch has them", "[device]") {
  const auto tracing = std::make_shared<TracingDevice>(open_test_device());
  Seam seam(tracing);
  KernelNode node = seam.kernel(increment_spec()).node({4}, seam.memory(4), std::uint32_t{1});
  const UniqueGraph graph = seam.graph();
  const auto line_of = [&] {
    seam.add(graph, node);
    return tracing->lines().back();
  };
  CHECK(contains(line_of(), "block 1,1,1 shared 0 (m1+0"));
  node.cooperative = true;
  CHECK(contains(line_of(), "block 1,1,1 shared 0 cooperative (m1+0"));
  if (seam->limits().compute_capability < 90) return;
  node.cooperative = false;
  node.cluster = {2, 1, 1};
  CHECK(contains(line_of(), "block 1,1,1 shared 0 cluster 2,1,1 (m1+0"));
}

}  // namespace weft::test
