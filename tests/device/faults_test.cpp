#include "device/faults.h"

#include "catch.h"
#include "device/host/host_device.h"
#include "device/seam.h"
#include "support/test_kernels.h"

#include <array>
#include <set>
#include <string>

namespace weft::test {

namespace {

/// A whole small life of graph and memory; throws at the first verb that fails,.
void prepare_and_run(const std::shared_ptr<DeviceApi>& device) {
  Seam seam(device);
  const SeamKernel increment_kernel = seam.kernel(increment_spec());
  const DeviceAddress word = seam.memory_of(std::vector<std::uint32_t>{1});
  const UniqueGraph graph = seam.graph();
  const NodeHandle fill = seam.add(graph, FillNode{word, 4, 0});
  seam.add(graph, increment_kernel.node({1}, word, std::uint32_t{5}), {fill});
  const UniqueExecutable executable = seam.instantiate(graph);
  seam.run(executable);
  if (seam.values<std::uint32_t>(word, 1).front() != 5) throw Error(ErrorCode::internal, "The result is wrong.");
}

}  // namespace

TEST_CASE("A counting device counts each verb and calls through", "[device]") {
  const auto counting = std::make_shared<CountingDevice>(open_test_device());
  prepare_and_run(counting);
  CHECK(counting->count(Verb::add_node) == 2);
  CHECK(counting->count(Verb::launch) == 1);
  CHECK(counting->count(Verb::copy) == 2);
  CHECK(counting->count(Verb::destroy_graph) == 1);
  CHECK(counting->count(Verb::wait_event) == 0);
  const std::uint64_t total = counting->total();
  counting->reset();
  CHECK(total > 10);
  CHECK(counting->total() == 0);
}

TEST_CASE("A failing device fails the chosen call alone", "[device]") {
  const auto failing = std::make_shared<FailingDevice>(open_test_device(), Verb::allocate, 1, StatusCode::unsupported);
  Seam seam(failing);
  DeviceAddress memory = 0;
  REQUIRE(failing->allocate(seam.stream(), 64, memory).ok());
  REQUIRE(failing->free(seam.stream(), memory).ok());
  CHECK(failing->allocate(seam.stream(), 64, memory).code == StatusCode::unsupported);
  CHECK(failing->has_failed());
  REQUIRE(failing->allocate(seam.stream(), 64, memory).ok());
  REQUIRE(failing->free(seam.stream(), memory).ok());
  CHECK(failing->calls() == 3);
  CHECK(failing->health().ok());
}

TEST_CASE("A device that fails for want of memory fails the second try too", "[device]") {
  const auto failing =
      std::make_shared<FailingDevice>(open_test_device(), Verb::allocate, 0, StatusCode::out_of_memory);
  Seam seam(failing);
  DeviceAddress memory = 0;
  for (int i = 0; i < 2; ++i) CHECK(failing->allocate(seam.stream(), 64, memory).code == StatusCode::out_of_memory);
  REQUIRE(failing->allocate(seam.stream(), 64, memory).ok());
  REQUIRE(failing->free(seam.stream(), memory).ok());
}

TEST_CASE("A failure with device lost is sticky", "[device]") {
  const auto failing = std::make_shared<FailingDevice>(open_test_device(), Verb::trim, 0, StatusCode::device_lost);
  CHECK(failing->health().ok());
  CHECK(failing->trim(0).code == StatusCode::device_lost);
  StreamHandle stream{};
  CHECK(failing->create_stream(stream).code == StatusCode::device_lost);
  CHECK(failing->health().code == StatusCode::device_lost);
}

TEST_CASE("Failing each call in turn ends in an error or does no harm", "[device][host-only]") {
  std::uint64_t calls = 0;
  {
    const auto none =
        std::make_shared<FailingDevice>(make_host_device(), std::nullopt, ~std::uint64_t{0}, StatusCode::out_of_memory);
    prepare_and_run(none);
    calls = none->calls();
  }
  REQUIRE(calls > 10);
  std::uint64_t errors = 0;
  for (std::uint64_t call = 0; call < calls; ++call) {
    INFO("call " << call << " of " << calls);
    const auto host = make_host_device();
    const auto failing = std::make_shared<FailingDevice>(host, std::nullopt, call, StatusCode::out_of_memory);
    try {
      prepare_and_run(failing);
    } catch (const Error& error) {
      CHECK(error.code() == ErrorCode::out_of_memory);
      ++errors;
    }
    CHECK(failing->has_failed());
    CHECK(host->violations().empty());
  }
  CHECK(errors >= 10);
}

TEST_CASE("An edge-dropping device leaves out one edge", "[device]") {
  const auto dropping = std::make_shared<EdgeDroppingDevice>(open_test_device(), 1);
  Seam seam(dropping);
  const DeviceAddress memory = seam.memory(64);
  const UniqueGraph graph = seam.graph();
  const NodeHandle first = seam.add(graph, FillNode{memory, 1, 0});
  const NodeHandle second = seam.add(graph, FillNode{memory + 1, 1, 0}, {first});
  const NodeHandle third = seam.add(graph, FillNode{memory + 2, 1, 0}, {first, second});
  GraphReadBack back;
  REQUIRE(seam->read_back(graph.get(), back).ok());
  REQUIRE(back.edges.size() == 2);
  for (const auto& edge : back.edges) {
    CHECK(((edge.from == first && edge.to == second) || (edge.from == second && edge.to == third)));
  }
  CHECK(dropping->edges() == 3);
}

TEST_CASE("Every verb has a name of its own", "[device]") {
  std::set<std::string_view> names;
  for (std::size_t verb = 0; verb < kVerbCount; ++verb) names.insert(to_string(static_cast<Verb>(verb)));
  CHECK(names.size() == kVerbCount);
  CHECK(names.count("unknown") == 0);
}

}  // namespace weft::test
