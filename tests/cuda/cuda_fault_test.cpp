#include "catch.h"
#include "cuda/gpu.h"

#include <cstdlib>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace weft::test {
namespace {

constexpr const char* kName = "A fault ends the device and no verb reaches the driver after it";
constexpr const char* kChild = "WEFT_FAULT_CHILD";

/// Runs this case again in a process of its own: a fault ends CUDA for the whole process.
int run_in_child() {
  ::setenv(kChild, "1", 1);
  std::string program = "/proc/self/exe";
  std::string name = kName;
  char* const arguments[] = {program.data(), name.data(), nullptr};
  pid_t child = 0;
  REQUIRE(::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ) == 0);
  ::unsetenv(kChild);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return status;
}

void fault_and_look() {
  const Gpu gpu;
  const Gpu::Kernel fill = gpu.kernel(own::fill_spec());
  const DeviceAddress memory = gpu.allocate(64);
  EventHandle event{};
  GraphHandle graph{};
  NodeHandle node{};
  ExecutableHandle executable{};
  must(gpu.api->create_event(event));
  must(gpu.api->create_graph(graph));
  must(gpu.api->add_node(graph, launch_of(fill, {1, 1, 1}, DeviceAddress{0x10}, std::uint64_t{16}, std::uint8_t{1}), {},
                         node));
  must(gpu.api->instantiate(graph, executable));
  must(gpu.api->launch(executable, gpu.stream));

  const DeviceStatus first = gpu.api->synchronize_stream(gpu.stream);
  CHECK(first.code == StatusCode::device_lost);
  CHECK(first.native == 700);

  const auto lost = [](DeviceStatus status) { return status.code == StatusCode::device_lost && status.native == 700; };
  DeviceAddress more = 0;
  PinnedMemory pinned;
  CHECK(lost(gpu.api->health()));
  CHECK(lost(gpu.api->allocate(gpu.stream, 64, more)));
  CHECK(lost(gpu.api->allocate_pinned(64, pinned)));
  CHECK(lost(gpu.api->launch(executable, gpu.stream)));
  CHECK(lost(gpu.api->query_stream(gpu.stream)));
  CHECK(lost(gpu.api->record_event(event, gpu.stream)));
  CHECK(lost(gpu.api->free(gpu.stream, memory)));
  CHECK(lost(gpu.api->destroy_executable(executable)));
  CHECK(lost(gpu.api->destroy_graph(graph)));
  CHECK(lost(gpu.api->destroy_event(event)));
  const Error error = refusal([&] { check(gpu.api->health(), "go on"); });
  CHECK(error.code() == ErrorCode::device_lost);
  CHECK(contains(error.sentence(), "a kernel used an address that is not mapped"));
}

TEST_CASE(kName, "[cuda][cuda-only][fault]") {
  if (std::getenv(kChild) != nullptr) {
    fault_and_look();
    return;
  }
  const int status = run_in_child();
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace weft::test
