#include "catch.h"
#include "cuda/capture.h"
#include "cuda/gpu.h"
#include "device/cuda/cuda_status.h"
#include "device/cuda/driver.h"

#include <cuda_runtime_api.h>

#include <optional>
#include <thread>

// What the rest of the process may count on while weft works.

namespace weft::test {
namespace {

/// Every kind of verb that a preparation and a request use, once.
void prepare_and_run() {
  Gpu gpu;
  const DeviceAddress memory = gpu.allocate(std::uint64_t{8} << 20);
  PinnedMemory pinned;
  must(gpu.api->allocate_pinned(4096, pinned));
  must(gpu.api->fill(gpu.stream, {memory, 4096, 1}));
  must(gpu.api->copy(gpu.stream, {pinned.device, memory, 4096}));
  const Gpu::Kernel copy = gpu.kernel(own::copy_spec());
  must(gpu.api->raise_dynamic_shared(copy.handle, 64 << 10));

  GraphHandle graph{};
  NodeHandle fill{};
  NodeHandle kernel{};
  must(gpu.api->create_graph(graph));
  must(gpu.api->add_node(graph, FillNode{memory, 280, 2}, {}, fill));
  const std::vector<Edge> after_fill = {{fill}};
  must(gpu.api->add_node(graph, launch_of(copy, {1, 1, 1}, memory + 512, memory, std::uint64_t{280}), after_fill,
                         kernel));
  must(gpu.api->set_node(graph, fill, FillNode{memory, 280, 3}));
  GraphReadBack found;
  must(gpu.api->read_back(graph, found));
  ExecutableHandle executable{};
  must(gpu.api->instantiate(graph, executable));
  must(gpu.api->upload(executable, gpu.stream));
  must(gpu.api->launch(executable, gpu.stream));
  must(gpu.api->set_executable_node(executable, fill, FillNode{memory, 280, 4}));
  must(gpu.api->destroy_executable(executable));
  must(gpu.api->destroy_graph(graph));

  EventHandle event{};
  must(gpu.api->create_event(event));
  must(gpu.api->record_event(event, gpu.stream));
  must(gpu.api->wait_event(gpu.stream, event));
  must(gpu.api->synchronize_event(event));
  static_cast<void>(gpu.api->query_stream(gpu.stream).ok());
  must(gpu.api->synchronize_stream(gpu.stream));
  must(gpu.api->destroy_event(event));

  MemoryInfo info;
  AddressInfo address;
  must(gpu.api->memory_info(info));
  must(gpu.api->describe_address(memory, address));
  must(gpu.api->free(gpu.stream, memory));
  must(gpu.api->free_pinned(pinned.host));
  must(gpu.api->synchronize_stream(gpu.stream));
  must(gpu.api->trim(0));
}

/// Errors travel to the test's thread: Catch2 does not take assertions from others.
template <class Body>
std::optional<Error> on_new_thread(Body body) {
  std::optional<Error> error;
  std::thread([&] {
    try {
      body();
    } catch (const Error& caught) {
      error = caught;
    }
  }).join();
  return error;
}

CUcontext current_context() {
  CUcontext context = nullptr;
  must(cuda::to_status(cuda::load_driver().CtxGetCurrent.function(&context), "cuCtxGetCurrent"));
  return context;
}

CUstreamCaptureMode capture_mode() {
  const auto exchange = cuda::load_driver().ThreadExchangeStreamCaptureMode.function;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  must(cuda::to_status(exchange(&mode), "cuThreadExchangeStreamCaptureMode"));
  CUstreamCaptureMode ours = mode;
  must(cuda::to_status(exchange(&ours), "cuThreadExchangeStreamCaptureMode"));
  return mode;
}

/// A stranger's capture in global mode, with one memset in it.
class Capture {
 public:
  Capture() {
    REQUIRE(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) == cudaSuccess);
    REQUIRE(cudaMalloc(&memory_, 64) == cudaSuccess);
    REQUIRE(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal) == cudaSuccess);
    REQUIRE(cudaMemsetAsync(memory_, 0, 64, stream_) == cudaSuccess);
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    static_cast<void>(cudaFree(memory_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  /// Ends it; true when it was not disturbed.
  bool end() { return end_capture_of_one_node(stream_); }

 private:
  cudaStream_t stream_ = nullptr;
  void* memory_ = nullptr;
};

TEST_CASE("A stranger's capture in global mode is not disturbed by preparing on its thread or another",
          "[cuda][cuda-only][capture]") {
  const auto open = open_device(Device::cuda());  // Opening is not part of what is watched here.
  Capture capture;
  SECTION("on another thread") {
    const auto error = on_new_thread(prepare_and_run);
    INFO((error ? error->what() : ""));
    CHECK(!error);
    CHECK(capture.end());
  }
  SECTION("on its own thread") {
    prepare_and_run();
    CHECK(capture.end());
  }
  SECTION("though an ordinary allocation breaks it") {
    void* memory = nullptr;
    CHECK(cudaMalloc(&memory, 64) != cudaSuccess);
    CHECK(!capture.end());
  }
}

TEST_CASE("Opening a device during a stranger's capture does not disturb it", "[cuda][cuda-only]") {
  Capture capture;
  const auto error = on_new_thread([] { static_cast<void>(open_device(Device::cuda())); });
  INFO((error ? error->what() : ""));
  CHECK(!error);
  CHECK(capture.end());
}

TEST_CASE("The current context and the capture mode are put back", "[cuda][cuda-only]") {
  const auto error = on_new_thread([] {
    const auto changed = [](const char* what) { return Error(ErrorCode::internal, what); };
    const CUcontext before = current_context();
    const CUstreamCaptureMode mode = capture_mode();
    if (before != nullptr) throw changed("A new thread has a current context.");
    prepare_and_run();
    if (current_context() != before) throw changed("The current context changed.");
    if (capture_mode() != mode) throw changed("The capture mode changed.");
  });
  INFO((error ? error->what() : ""));
  CHECK(!error);
}

}  // namespace
}  // namespace weft::test
