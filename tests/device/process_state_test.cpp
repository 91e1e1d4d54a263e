#include "device/process_state.h"

#include "catch.h"
#include "device/host/host_device.h"
#include "device/own_kernels.h"
#include "device/registry.h"
#include "device/seam.h"
#include "support/device.h"
#include "support/new_process.h"
#include "support/test_kernels.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace weft::test {

namespace {

/// A device with one of each object, and work that is queued.
struct BusyDevice {
  std::shared_ptr<DeviceApi> api = open_test_device();
  StreamHandle stream{};
  EventHandle event{};
  DeviceAddress memory = 0;
  PinnedMemory pinned;
  ModuleHandle module{};
  KernelHandle kernel{};
  CompiledKernel compiled;
  GraphHandle graph{};
  NodeHandle node{};
  ExecutableHandle executable{};

  BusyDevice() {
    const KernelSpec spec = slow_copy_spec();
    check(api->create_stream(stream), "create a stream");
    check(api->create_event(event), "create an event");
    check(api->allocate(stream, 256, memory), "allocate");
    check(api->allocate_pinned(256, pinned), "allocate pinned memory");
    check(api->load(spec.image, module), "load");
    check(api->find_kernel(module, spec, kernel, compiled), "find a kernel");
    check(api->create_graph(graph), "create a graph");
    const SeamKernel slow{kernel, compiled, spec.block};
    constexpr std::uint64_t kNanoseconds = 20'000'000;
    check(api->add_node(graph, slow.node({1}, memory, memory + 128, std::uint64_t{1}, kNanoseconds), {}, node), "add");
    check(api->instantiate(graph, executable), "instantiate");
    check(api->record_event(event, stream), "record");
    for (int i = 0; i < 3; ++i) check(api->launch(executable, stream), "launch");
  }

  /// What every verb answers, by name.
  [[nodiscard]] std::vector<std::pair<const char*, DeviceStatus>> answers() const {
    DeviceApi& device = *api;
    MemoryInfo memory_info;
    AddressInfo address_info;
    DeviceAddress address = 0;
    PinnedMemory more;
    ModuleHandle other_module{};
    KernelHandle other_kernel{};
    CompiledKernel other_compiled;
    GlobalVariable variable;
    std::uint64_t blocks = 0;
    GraphHandle other_graph{};
    NodeHandle other_node{};
    ExecutableHandle other_executable{};
    GraphReadBack description;
    StreamHandle other_stream{};
    EventHandle other_event{};
    const FillNode fill{memory, 64, 1};
    const CopyNode copy{memory, memory + 64, 64};
    return {{"health", device.health()},
            {"memory_info", device.memory_info(memory_info)},
            {"describe_address", device.describe_address(memory, address_info)},
            {"allocate", device.allocate(stream, 64, address)},
            {"trim", device.trim(0)},
            {"allocate_pinned", device.allocate_pinned(64, more)},
            {"fill", device.fill(stream, fill)},
            {"copy", device.copy(stream, copy)},
            {"load", device.load(own::fill_spec().image, other_module)},
            {"find_kernel", device.find_kernel(module, slow_copy_spec(), other_kernel, other_compiled)},
            {"find_global", device.find_global(module, "none", variable)},
            {"raise_dynamic_shared", device.raise_dynamic_shared(kernel, 1024)},
            {"max_resident_blocks", device.max_resident_blocks({kernel, {1, 1, 1}, {1, 1, 1}, 0, {}}, blocks)},
            {"create_graph", device.create_graph(other_graph)},
            {"add_node", device.add_node(graph, fill, {}, other_node)},
            {"set_node", device.set_node(graph, node, fill)},
            {"read_back", device.read_back(graph, description)},
            {"instantiate", device.instantiate(graph, other_executable)},
            {"set_executable_node", device.set_executable_node(executable, node, fill)},
            {"upload", device.upload(executable, stream)},
            {"launch", device.launch(executable, stream)},
            {"create_stream", device.create_stream(other_stream)},
            {"query_stream", device.query_stream(stream)},
            {"synchronize_stream", device.synchronize_stream(stream)},
            {"create_event", device.create_event(other_event)},
            {"record_event", device.record_event(event, stream)},
            {"wait_event", device.wait_event(stream, event)},
            {"synchronize_event", device.synchronize_event(event)},
            {"check_foreign_stream", device.check_foreign_stream(stream)},
            {"adopt_event", device.adopt_event(event, other_event)},
            {"free", device.free(stream, memory)},
            {"free_pinned", device.free_pinned(pinned.host)},
            {"destroy_executable", device.destroy_executable(executable)},
            {"destroy_graph", device.destroy_graph(graph)},
            {"unload", device.unload(module)},
            {"destroy_event", device.destroy_event(event)},
            {"destroy_stream", device.destroy_stream(stream)}};
  }

  /// The first verb that does not answer device_lost with this detail; null where all do.
  [[nodiscard]] const char* first_not_lost(std::string_view detail) const {
    for (const auto& [verb, status] : answers()) {
      if (status.code != StatusCode::device_lost || status.detail != detail) return verb;
    }
    return nullptr;
  }
};

constexpr const char* kForked = "the process was forked after a device was opened";
constexpr const char* kExiting = "the process is exiting";

void require_all_lost(const BusyDevice& device, const char* detail, int code) {
  const char* verb = device.first_not_lost(detail);
  if (verb == nullptr) return;
  static_cast<void>(std::fprintf(stderr, "%s does not answer that %s.\n", verb, detail));
  std::_Exit(code);
}

/// Destroyed after the exit handler of a device that was opened later: it was made before main.
struct LastObject {
  std::unique_ptr<BusyDevice> device;
  LastObject() = default;
  LastObject(const LastObject&) = delete;
  LastObject& operator=(const LastObject&) = delete;
  ~LastObject() {
    if (device == nullptr) return;
    require(process_state() == ProcessState::exiting, 3);
    require_all_lost(*device, kExiting, 4);
    device.reset();
  }
};
LastObject last_object;

}  // namespace

TEST_CASE("A child after fork is told by every verb that the device is lost", "[device][fork]") {
  in_new_process([] {
    auto device = std::make_unique<BusyDevice>();
    require(succeeds_in_child([&] {
              require(process_state() == ProcessState::forked, 2);
              require_all_lost(*device, kForked, 3);
              device.reset();
            }),
            10);
    require(process_state() == ProcessState::running, 11);
    require(device->api->synchronize_stream(device->stream).ok(), 12);
    require(device->api->launch(device->executable, device->stream).ok(), 13);
    require(device->api->synchronize_stream(device->stream).ok(), 14);
    std::exit(0);
  });
}

TEST_CASE("A child after fork opens no device", "[device][fork]") {
  in_new_process([] {
    open_test_device().reset();
    require(succeeds_in_child([] {
              for (const Device device : {test_device(), Device::host(7)}) {
                const Error error = refusal([&] { static_cast<void>(open_device(device)); });
                require(error.code() == ErrorCode::device_lost, 2);
                require(contains(error.sentence(), kForked), 3);
              }
              require(refusal([] { static_cast<void>(first_usable_gpu()); }).code() == ErrorCode::device_lost, 4);
            }),
            10);
    std::exit(0);
  });
}

TEST_CASE("A child that is forked before any device is opened may open one", "[device][fork]") {
  in_new_process([] {
    require(succeeds_in_child(
                [] {
                  Seam seam(open_test_device());
                  const DeviceAddress memory = seam.memory_of(std::vector<std::uint32_t>{40});
                  const SeamKernel kernel = seam.kernel(increment_spec());
                  const UniqueGraph graph = seam.graph();
                  seam.add(graph, kernel.node({1}, memory, std::uint32_t{2}));
                  seam.run(graph);
                  require(seam.values<std::uint32_t>(memory, 1).front() == 42, 2);
                },
                kScenarioSeconds),
            10);
    require(process_state() == ProcessState::running, 11);
    std::exit(0);
  });
}

TEST_CASE("A failed opening leaves children free to open a device", "[device][fork]") {
  in_new_process([] {
    { const DeviceOpening failed; }
    require(succeeds_in_child([] {
              require(process_state() == ProcessState::running, 2);
              require(make_host_device()->health().ok(), 3);
            }),
            10);
    std::exit(0);
  });
}

TEST_CASE("A child that is forked while a device opens finds the process forked", "[device][fork]") {
  in_new_process([] {
    const DeviceOpening opening;
    require(succeeds_in_child([] { require(process_state() == ProcessState::forked, 2); }), 10);
    std::exit(0);
  });
}

TEST_CASE("A child forked from a host device whose locks are in use does not hang", "[device][fork][host-only]") {
  in_new_process([] {
    const std::shared_ptr<HostDevice> device = make_host_device();
    StreamHandle stream{};
    DeviceAddress memory = 0;
    check(device->create_stream(stream), "create a stream");
    check(device->allocate(stream, 64, memory), "allocate");
    std::atomic<bool> stop{false};
    std::thread user([&] {
      while (!stop) static_cast<void>(device->fill(stream, {memory, 64, 1}));
    });
    // Some of these forks fall into a verb of the other thread, and some into the worker.
    for (int i = 0; i < 50; ++i) {
      require(succeeds_in_child([&] {
                require(device->fill(stream, {memory, 64, 1}).code == StatusCode::device_lost, 2);
                require(device->synchronize_stream(stream).code == StatusCode::device_lost, 3);
                std::shared_ptr<HostDevice>(device).reset();
              }),
              10);
    }
    stop = true;
    user.join();
    std::exit(0);
  });
}

TEST_CASE("A held host device with queued work lets a child end", "[device][fork][host-only]") {
  in_new_process([] {
    std::shared_ptr<HostDevice> device = make_host_device();
    StreamHandle stream{};
    DeviceAddress memory = 0;
    check(device->create_stream(stream), "create a stream");
    check(device->allocate(stream, 64, memory), "allocate");
    device->hold();
    for (int i = 0; i < 8; ++i) check(device->fill(stream, {memory, 64, 1}), "fill");
    require(succeeds_in_child([&] {
              require(device->query_stream(stream).code == StatusCode::device_lost, 2);
              device.reset();
            }),
            10);
    device->drain();
    require(device->query_stream(stream).ok(), 11);
    std::exit(0);
  });
}

TEST_CASE("exit from main ends a process whose static objects hold a busy device", "[device][fork]") {
  in_new_process([] {
    last_object.device = std::make_unique<BusyDevice>();
    static BusyDevice first;  // Destroyed before the exit handler runs.
    std::exit(0);
  });
}

TEST_CASE("exit from another thread ends a process that uses a device", "[device][fork]") {
  in_new_process([] {
    last_object.device = std::make_unique<BusyDevice>();
    const BusyDevice on_stack;
    std::thread([] { std::exit(0); }).detach();
    while (on_stack.api->launch(on_stack.executable, on_stack.stream).ok()) {
      static_cast<void>(on_stack.api->synchronize_stream(on_stack.stream));
    }
    for (;;) ::pause();
  });
}

}  // namespace weft::test
