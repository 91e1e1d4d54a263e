#include "device/host/host_device.h"

#include "catch.h"
#include "device/seam.h"
#include "support/test_kernels.h"

#include <stdexcept>
#include <thread>

namespace weft::test {

namespace {

std::vector<std::string> broken(const char* rule) { return {rule}; }

/// A kernel with a host reference of its own.
KernelSpec kernel_that_runs(std::function<void(const HostLaunch&)> run) {
  KernelSpec spec = increment_spec();
  spec.symbol = "special";
  spec.host->run = std::move(run);
  return spec;
}

}  // namespace

TEST_CASE("The host device publishes the limits of an H200", "[device][host-only]") {
  const DeviceLimits limits = make_host_device()->limits();
  CHECK(limits.name == "host");
  CHECK(limits.compute_capability == 90);
  CHECK(limits.driver_version == 0);
  CHECK(limits.multiprocessors == 132);
  CHECK(limits.max_threads_per_block == 1024);
  CHECK(limits.max_grid == Dim3{2147483647, 65535, 65535});
  CHECK(limits.max_shared_bytes == 232448);
  CHECK(limits.max_parameter_bytes == 32764);
}

TEST_CASE("Verbs on destroyed and unknown handles answer internal and are latched", "[device][host-only]") {
  const auto host = make_host_device();
  StreamHandle stream{};
  REQUIRE(host->create_stream(stream).ok());
  REQUIRE(host->destroy_stream(stream).ok());
  const DeviceStatus destroyed = host->query_stream(stream);
  CHECK(destroyed.code == StatusCode::internal);
  CHECK(std::string(destroyed.detail) == "the stream is destroyed");
  const DeviceStatus unknown = host->destroy_graph(GraphHandle{12});
  CHECK(unknown.code == StatusCode::internal);
  CHECK(std::string(unknown.detail) == "the graph handle is unknown");
  CHECK(host->violations() == std::vector<std::string>{"the stream is destroyed", "the graph handle is unknown"});
  CHECK(host->health().ok());
}

TEST_CASE("Destroyed objects of every kind are told", "[device][host-only]") {
  const auto host = make_host_device();
  Seam seam(host);
  GraphHandle graph{};
  ExecutableHandle executable{};
  EventHandle event{};
  ModuleHandle module{};
  REQUIRE(host->create_graph(graph).ok());
  REQUIRE(host->instantiate(graph, executable).ok());
  REQUIRE(host->create_event(event).ok());
  REQUIRE(host->load({}, module).ok());
  REQUIRE(host->destroy_graph(graph).ok());
  REQUIRE(host->destroy_executable(executable).ok());
  REQUIRE(host->destroy_event(event).ok());
  REQUIRE(host->unload(module).ok());
  CHECK(std::string(host->instantiate(graph, executable).detail) == "the graph is destroyed");
  CHECK(std::string(host->launch(executable, seam.stream()).detail) == "the executable is destroyed");
  CHECK(std::string(host->record_event(event, seam.stream()).detail) == "the event is destroyed");
  CHECK(std::string(host->unload(module).detail) == "the module is unloaded");
}

TEST_CASE("Setting a node of a running executable answers internal", "[device][host-only]") {
  const auto host = make_host_device();
  Seam seam(host);
  const DeviceAddress memory = seam.memory(8);
  const UniqueGraph graph = seam.graph();
  const NodeHandle node = seam.add(graph, FillNode{memory, 8, 1});
  const UniqueExecutable executable = seam.instantiate(graph);
  host->hold();
  REQUIRE(host->launch(executable.get(), seam.stream()).ok());
  CHECK(host->set_executable_node(executable.get(), node, FillNode{memory, 8, 2}).code == StatusCode::internal);
  host->drain();
  CHECK(host->set_executable_node(executable.get(), node, FillNode{memory, 8, 2}).ok());
  CHECK(seam.values<std::uint8_t>(memory, 1).front() == 1);
  CHECK(host->violations() == broken("a node is set in an executable that is running"));
}

TEST_CASE("New work on memory whose free is queued answers internal", "[device][host-only]") {
  const auto host = make_host_device();
  Seam seam(host);
  DeviceAddress memory = 0;
  REQUIRE(host->allocate(seam.stream(), 64, memory).ok());
  host->hold();
  REQUIRE(host->free(seam.stream(), memory).ok());
  CHECK(host->objects().allocations == 1);
  CHECK(host->fill(seam.stream(), {memory, 64, 1}).code == StatusCode::internal);
  CHECK(seam.try_add(FillNode{memory, 64, 1}).code == StatusCode::internal);
  host->drain();
  CHECK(host->objects().allocations == 0);
  CHECK(host->violations() == std::vector<std::string>(2, "memory is used whose free is already queued"));
}

TEST_CASE("A free that overtakes work is latched and the work then loses the device", "[device][host-only]") {
  // What uses the memory: a fill and a copy by their ranges, a kernel by its binding.
  const auto user = [](Seam& seam, int kind, DeviceAddress memory) -> Node {
    const DeviceAddress kept = seam.memory(64);
    if (kind == 0) return FillNode{memory + 8, 8, 1};
    if (kind == 1) return CopyNode{kept, memory + 8, 8};
    if (kind == 2) return CopyNode{memory + 8, kept, 8};
    return seam.kernel(increment_spec()).node({1}, memory + 8, std::uint32_t{1});
  };
  for (int kind = 0; kind < 4; ++kind) {
    int overtaken = 0;
    for (std::uint64_t seed = 0; seed < 16; ++seed) {
      INFO("kind " << kind << " seed " << seed);
      const auto host = make_host_device({.shuffled = true, .seed = seed});
      Seam seam(host);
      const UniqueStream other = seam.another_stream();
      DeviceAddress memory = 0;
      REQUIRE(host->allocate(seam.stream(), 64, memory).ok());
      const UniqueGraph graph = seam.graph();
      const NodeHandle gate = seam.add(graph, FillNode{seam.memory(4), 4, 0});
      seam.add(graph, user(seam, kind, memory), {gate});
      const UniqueExecutable executable = seam.instantiate(graph);
      host->hold();
      REQUIRE(host->launch(executable.get(), seam.stream()).ok());
      // On a stream that nothing orders after the launch.
      REQUIRE(host->free(other.get(), memory).ok());
      host->drain();
      if (host->health().ok()) {
        CHECK(host->violations().empty());
        continue;
      }
      ++overtaken;
      CHECK(host->violations() == std::vector<std::string>{"memory is freed while queued work uses it",
                                                           "a node runs over memory that is not allocated"});
    }
    CHECK(overtaken > 0);
    CHECK(overtaken < 16);
  }
}

TEST_CASE("An executable over freed memory is not launched", "[device][host-only]") {
  const auto host = make_host_device();
  Seam seam(host);
  const SeamKernel increment_kernel = seam.kernel(increment_spec());
  DeviceAddress memory = 0;
  REQUIRE(host->allocate(seam.stream(), 64, memory).ok());
  const UniqueGraph graph = seam.graph();
  seam.add(graph, increment_kernel.node({1}, memory + 8, std::uint32_t{1}));
  const UniqueExecutable executable = seam.instantiate(graph);
  REQUIRE(host->free(seam.stream(), memory).ok());
  CHECK(host->launch(executable.get(), seam.stream()).code == StatusCode::internal);
  seam.synchronize();
  CHECK(host->launch(executable.get(), seam.stream()).code == StatusCode::internal);
  CHECK(host->violations().size() == 2);
}

TEST_CASE("Frees of what is not allocated answer internal", "[device][host-only]") {
  const auto host = make_host_device();
  Seam seam(host);
  DeviceAddress memory = 0;
  REQUIRE(host->allocate(seam.stream(), 64, memory).ok());
  const PinnedMemory pinned = seam.pinned(64);
  CHECK(host->free(seam.stream(), memory + 1).code == StatusCode::internal);
  CHECK(host->free(seam.stream(), pinned.device).code == StatusCode::internal);
  CHECK(host->free_pinned(pinned.host + 1).code == StatusCode::internal);
  host->hold();
  REQUIRE(host->free(seam.stream(), memory).ok());
  CHECK(std::string(host->free(seam.stream(), memory).detail) == "memory is freed twice");
  host->release();
}

TEST_CASE("Pinned memory that queued work uses is not freed", "[device][host-only]") {
  const auto host = make_host_device();
  Seam seam(host);
  PinnedMemory pinned;
  REQUIRE(host->allocate_pinned(64, pinned).ok());
  host->hold();
  REQUIRE(host->fill(seam.stream(), {pinned.device + 8, 8, 1}).ok());
  CHECK(host->free_pinned(pinned.host).code == StatusCode::internal);
  host->drain();
  CHECK(host->free_pinned(pinned.host).ok());
}

TEST_CASE("A module with queued work is not unloaded and its kernels end with it", "[device][host-only]") {
  const auto host = make_host_device();
  Seam seam(host);
  const KernelSpec spec = increment_spec();
  ModuleHandle module{};
  SeamKernel increment_kernel{.compiled = {}, .block = spec.block};
  REQUIRE(host->load(spec.image, module).ok());
  REQUIRE(host->find_kernel(module, spec, increment_kernel.handle, increment_kernel.compiled).ok());
  const KernelNode node = increment_kernel.node({1}, seam.memory(4), std::uint32_t{1});
  const UniqueGraph graph = seam.graph();
  seam.add(graph, node);
  const UniqueExecutable executable = seam.instantiate(graph);
  host->hold();
  REQUIRE(host->launch(executable.get(), seam.stream()).ok());
  CHECK(host->unload(module).code == StatusCode::internal);
  host->drain();
  REQUIRE(host->unload(module).ok());
  CHECK(host->launch(executable.get(), seam.stream()).code == StatusCode::internal);
  CHECK(std::string(seam.try_add(node).detail) == "the kernel's module is unloaded");
}

TEST_CASE("A kernel without a host reference is found and added but not launched", "[device][host-only]") {
  const auto host = make_host_device();
  Seam seam(host);
  KernelSpec spec = xor_bytes_spec();
  spec.host.reset();
  const SeamKernel kernel = seam.kernel(spec);
  CHECK(kernel.compiled.parameters == host_layout(xor_bytes_spec()).parameters);
  const DeviceAddress memory = seam.memory(8);
  const UniqueGraph graph = seam.graph();
  seam.add(graph, kernel.node({1}, memory, memory, std::uint64_t{8}, std::uint8_t{1}));
  const UniqueExecutable executable = seam.instantiate(graph);
  CHECK(host->launch(executable.get(), seam.stream()).code == StatusCode::unsupported);
  CHECK(host->query_stream(seam.stream()).ok());
  CHECK(host->violations().empty());
}

TEST_CASE("A kernel bound to no allocation is not launched", "[device][host-only]") {
  const auto host = make_host_device();
  Seam seam(host);
  const SeamKernel increment_kernel = seam.kernel(increment_spec());
  const UniqueGraph graph = seam.graph();
  seam.add(graph, increment_kernel.node({1}, DeviceAddress{0}, std::uint32_t{1}));
  const UniqueExecutable executable = seam.instantiate(graph);
  CHECK(host->launch(executable.get(), seam.stream()).code == StatusCode::internal);
}

TEST_CASE("A host reference that throws loses the device and wakes waiters", "[device][host-only]") {
  const auto host = make_host_device();
  Seam seam(host);
  const SeamKernel kernel =
      seam.kernel(kernel_that_runs([](const HostLaunch&) { throw std::runtime_error("a bad kernel"); }));
  const UniqueGraph graph = seam.graph();
  seam.add(graph, kernel.node({1}, seam.memory(4), std::uint32_t{1}));
  const UniqueExecutable executable = seam.instantiate(graph);
  REQUIRE(host->launch(executable.get(), seam.stream()).ok());
  CHECK(host->synchronize_stream(seam.stream()).code == StatusCode::device_lost);
  CHECK(host->health().code == StatusCode::device_lost);
  CHECK(host->violations() == broken("a kernel's host reference throws"));
}

TEST_CASE("A lost device answers device lost everywhere and drops what is queued", "[device][host-only]") {
  const auto host = make_host_device();
  Seam seam(host);
  const PinnedMemory memory = seam.pinned(4);
  host->hold();
  REQUIRE(host->fill(seam.stream(), {memory.device, 4, 1}).ok());
  StatusCode waited = StatusCode::ok;
  std::thread waiter([&] { waited = host->synchronize_stream(seam.stream()).code; });
  host->lose();
  waiter.join();
  CHECK(waited == StatusCode::device_lost);
  host->drain();
  CHECK(memory.host[0] == std::byte{0});

  DeviceAddress address = 0;
  StreamHandle stream{};
  MemoryInfo info;
  CHECK(host->allocate(seam.stream(), 4, address).code == StatusCode::device_lost);
  CHECK(host->create_stream(stream).code == StatusCode::device_lost);
  CHECK(host->query_stream(seam.stream()).code == StatusCode::device_lost);
  CHECK(host->memory_info(info).code == StatusCode::device_lost);
  CHECK(host->free_pinned(memory.host).code == StatusCode::device_lost);
  CHECK(host->health().code == StatusCode::device_lost);
  CHECK(host->violations().empty());
}

TEST_CASE("New device memory holds a pattern that is not zero", "[device][host-only]") {
  Seam seam(make_host_device());
  const DeviceAddress memory = seam.memory(64);
  CHECK(seam.values<std::uint8_t>(memory, 64) == std::vector<std::uint8_t>(64, 0xa5));
}

TEST_CASE("The memory of a host device ends where its limits say", "[device][host-only]") {
  DeviceLimits limits = host_limits();
  limits.total_memory_bytes = 1000;
  Seam seam(make_host_device({.limits = limits}));
  DeviceAddress first = 0;
  DeviceAddress second = 0;
  REQUIRE(seam->allocate(seam.stream(), 600, first).ok());
  CHECK(seam->allocate(seam.stream(), 401, second).code == StatusCode::out_of_memory);
  REQUIRE(seam->free(seam.stream(), first).ok());
  seam.synchronize();
  REQUIRE(seam->allocate(seam.stream(), 1000, second).ok());
  REQUIRE(seam->free(seam.stream(), second).ok());
}

TEST_CASE("A host device with work queued finishes it before it ends", "[device][host-only]") {
  std::vector<std::uint8_t> bytes(8, 0);
  {
    const auto host = make_host_device();
    StreamHandle stream{};
    DeviceAddress memory = 0;
    REQUIRE(host->create_stream(stream).ok());
    REQUIRE(host->allocate(stream, 8, memory).ok());
    host->hold();
    REQUIRE(host->fill(stream, {memory, 8, 3}).ok());
    REQUIRE(host->copy(stream, {reinterpret_cast<DeviceAddress>(bytes.data()), memory, 8}).ok());
  }
  CHECK(bytes == std::vector<std::uint8_t>(8, 3));
}

}  // namespace weft::test
