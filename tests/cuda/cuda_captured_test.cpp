#include "catch.h"
#include "cuda/beside_others.h"
#include "cuda/capture.h"
#include "cuda/captured_kernels.h"
#include "support/model_fixture.h"
#include "support/new_process.h"
#include <weft/cuda.h>
#include <weft/weft.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// Captured calls of libraries that a GPU alone can tell about. What holds on any device: edges/captured_test.cpp.

namespace weft::test {
namespace {

constexpr std::uint32_t kCount = 4096;
using Values = std::vector<std::uint8_t>;
using Enqueue = std::function<void(const CapturedCall&)>;

void must(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

void enqueue_xor(const CapturedCall& call) {
  launch_xor(call.stream, call.get<const std::uint8_t*>(0), call.get<std::uint8_t*>(1), kCount, 0xff);
}

/// One call from x to y.
struct CallingModel {
  explicit CallingModel(Enqueue enqueue = enqueue_xor, std::uint64_t workspace_bytes = 0)
      : CallingModel(TestSession(), std::move(enqueue), workspace_bytes) {}
  CallingModel(TestSession test, Enqueue enqueue, std::uint64_t workspace_bytes)
      : x(test.session.allocate<std::uint8_t>({kCount}, {.label = "x"})),
        y(test.session.allocate<std::uint8_t>({kCount}, {.label = "y"})),
        fragment(test.freeze().fragment(
            trusted, {.inputs = {x},
                      .outputs = {y},
                      .commands = {captured("gemm", {x.read(), y.write()}, workspace_bytes, std::move(enqueue))}})) {}

  TypedRegion<std::uint8_t> x;
  TypedRegion<std::uint8_t> y;
  ModelFragment fragment;
};

/// What the preparation of a call is refused with; the next good one works.
Error refusal_of(const Enqueue& enqueue) {
  const CallingModel bad(enqueue);
  const Error error = refusal([&] { static_cast<void>(bad.fragment.prepare({.slots = 2})); });
  INFO(error.what());
  CHECK(std::string(error.what()).find("recording the call \"gemm\"") != std::string::npos);
  CHECK(cudaPeekAtLastError() == cudaSuccess);
  PreparedModel good = CallingModel().fragment.prepare({.slots = 2});
  CHECK(infer(good, fresh_bytes(kCount, 5)) == xored(fresh_bytes(kCount, 5), 0xff));
  return error;
}

bool says(const Error& error, const std::string& what) {
  INFO(error.sentence());
  return error.sentence().find(what) != std::string::npos;
}

class Stream {
 public:
  Stream() { must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }
  operator cudaStream_t() const noexcept { return stream_; }  // NOLINT: stands for the stream

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { must(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event() { static_cast<void>(cudaEventDestroy(event_)); }
  operator cudaEvent_t() const noexcept { return event_; }  // NOLINT: stands for the event

 private:
  cudaEvent_t event_ = nullptr;
};

std::uint64_t free_bytes() {
  std::size_t free = 0;
  std::size_t total = 0;
  must(cudaMemGetInfo(&free, &total));
  return free;
}

}  // namespace

TEST_CASE("A call that enqueues nothing is refused", "[cuda][captured][case-26][cuda-only]") {
  const Error error = refusal_of([](const CapturedCall&) {});
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(says(error, "it enqueues nothing on its stream"));
}

TEST_CASE("A call that works on another stream alone is refused", "[cuda][captured][cuda-only]") {
  const Stream other;
  const Error error = refusal_of([&](const CapturedCall& call) {
    launch_xor(other, call.get<const std::uint8_t*>(0), call.get<std::uint8_t*>(1), kCount, 1);
  });
  CHECK(says(error, "it enqueues nothing on its stream"));
  must(cudaStreamSynchronize(other));
}

TEST_CASE("A call that drops an error and goes on is refused with that error", "[cuda][captured][case-26][cuda-only]") {
  const Error error = refusal_of([](const CapturedCall& call) {
    // A copy from nowhere: refused, and the capture goes on.
    static_cast<void>(cudaMemcpyAsync(call.get<void*>(1), nullptr, kCount, cudaMemcpyDeviceToDevice, call.stream));
    enqueue_xor(call);
  });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(says(error, "The CUDA runtime refuses what it does: "));
}

TEST_CASE("A batch of copies is recorded whole or refused", "[cuda][captured][case-26][cuda-only]") {
  bool is_refused = false;
  const Enqueue enqueue = [&](const CapturedCall& call) {
    const void* sources[] = {call.get<const void*>(0)};
    void* destinations[] = {call.get<void*>(1)};
    std::size_t sizes[] = {kCount};
    std::size_t first[] = {0};
    cudaMemcpyAttributes attributes{};
    attributes.srcAccessOrder = cudaMemcpySrcAccessOrderStream;
    is_refused =
        cudaMemcpyBatchAsync(destinations, sources, sizes, 1, &attributes, first, 1, call.stream) != cudaSuccess;
    launch_xor(call.stream, call.get<const std::uint8_t*>(1), call.get<std::uint8_t*>(1), kCount, 0xff);
  };
  CallingModel model(enqueue);
  std::optional<PreparedModel> pool;
  std::optional<Error> error;
  try {
    pool = model.fragment.prepare();
  } catch (const Error& caught) {
    error = caught;
  }
  REQUIRE(error.has_value() == is_refused);
  if (pool) CHECK(infer(*pool, fresh_bytes(kCount, 2)) == xored(fresh_bytes(kCount, 2), 0xff));
}

TEST_CASE("A call that forks to another stream and joins it again is recorded whole", "[cuda][captured][cuda-only]") {
  const Stream other;
  const Event forked;
  const Event joined;
  CallingModel model([&](const CapturedCall& call) {
    const auto* x = call.get<const std::uint8_t*>(0);
    auto* y = call.get<std::uint8_t*>(1);
    must(cudaEventRecord(forked, call.stream));
    must(cudaStreamWaitEvent(other, forked));
    launch_xor(call.stream, x, y, kCount / 2, 0xff);
    launch_xor(other, x + kCount / 2, y + kCount / 2, kCount / 2, 0x0f);
    must(cudaEventRecord(joined, other));
    must(cudaStreamWaitEvent(call.stream, joined));
    launch_xor(call.stream, y, y, kCount, 0xf0);
  });
  PreparedModel pool = model.fragment.prepare({.slots = 3});
  CHECK(pool.node_counts().captured_nodes == 3);
  for (std::uint64_t round = 0; round < 9; ++round) {
    const Values input = fresh_bytes(kCount, round);
    Values expected = xored(input, 0x0f);
    std::ranges::copy(xored(Values(input.begin() + kCount / 2, input.end()), 0xff), expected.begin() + kCount / 2);
    CHECK(infer(pool, input) == expected);
  }
}

TEST_CASE("A call that ends on two streams orders what follows behind both", "[cuda][captured][cuda-only]") {
  // The last nodes of the call are two: each has edges to what follows.
  const Stream other;
  const Event forked;
  const Event joined;
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({kCount});
  const auto h = test.session.allocate<std::uint8_t>({kCount});
  const auto y = test.session.allocate<std::uint8_t>({kCount});
  const Command call = captured("fork", {x.read(), h.write()}, 0, [&](const CapturedCall& given) {
    must(cudaEventRecord(forked, given.stream));
    must(cudaStreamWaitEvent(other, forked));
    for (const auto& [stream, begin] : {std::pair<cudaStream_t, std::uint32_t>{given.stream, 0}, {other, kCount / 2}}) {
      launch_xor(stream, given.get<const std::uint8_t*>(0) + begin, given.get<std::uint8_t*>(1) + begin, kCount / 2,
                 0xff);
    }
    must(cudaEventRecord(joined, other));
    must(cudaStreamWaitEvent(given.stream, joined));
  });
  const Command after = test.xor_of(h, y, 0x11);
  PreparedModel pool =
      test.freeze().fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {call, after}}).prepare();
  CHECK(pool.node_counts().captured_nodes == 2);
  for (std::uint64_t round = 0; round < 20; ++round)
    CHECK(infer(pool, fresh_bytes(kCount, round)) == xored(fresh_bytes(kCount, round), 0xff ^ 0x11));
}

TEST_CASE("A call that leaves another stream unjoined is refused", "[cuda][captured][cuda-only]") {
  const Stream other;
  const Event forked;
  const Error error = refusal_of([&](const CapturedCall& call) {
    must(cudaEventRecord(forked, call.stream));
    must(cudaStreamWaitEvent(other, forked));
    launch_xor(other, call.get<const std::uint8_t*>(0), call.get<std::uint8_t*>(1), kCount, 1);
    enqueue_xor(call);
  });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(says(error, "another stream that joined the capture was not joined back"));
  cudaStreamCaptureStatus state = cudaStreamCaptureStatusActive;
  must(cudaStreamIsCapturing(other, &state));
  CHECK(state == cudaStreamCaptureStatusNone);
}

TEST_CASE("A call that allocates is refused", "[cuda][captured][cuda-only]") {
  SECTION("from the driver") {
    const Error error = refusal_of([](const CapturedCall& call) {
      void* memory = nullptr;
      must(cudaMalloc(&memory, 1 << 20));
      enqueue_xor(call);
    });
    CHECK(error.code() == ErrorCode::failed);
    CHECK(says(error, "It throws: operation not permitted when stream is capturing"));
  }
  SECTION("from the driver, and drops the error") {
    const Error error = refusal_of([](const CapturedCall& call) {
      void* memory = nullptr;
      static_cast<void>(cudaMalloc(&memory, 1 << 20));
      enqueue_xor(call);
    });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(says(error, "captur"));
  }
  SECTION("in the order of its stream") {
    const Error error = refusal_of([](const CapturedCall& call) {
      void* memory = nullptr;
      must(cudaMallocAsync(&memory, 1 << 20, call.stream));
      enqueue_xor(call);
      must(cudaFreeAsync(memory, call.stream));
    });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(says(error, "it allocates or frees memory in the capture"));
  }
}

TEST_CASE("A call that synchronizes is refused", "[cuda][captured][cuda-only]") {
  const auto after = [](const std::function<cudaError_t(cudaStream_t)>& synchronize) {
    return refusal_of([&](const CapturedCall& call) {
      enqueue_xor(call);
      static_cast<void>(synchronize(call.stream));
    });
  };
  CHECK(after([](cudaStream_t stream) { return cudaStreamSynchronize(stream); }).code() == ErrorCode::invalid);
  CHECK(after([](cudaStream_t) { return cudaDeviceSynchronize(); }).code() == ErrorCode::invalid);
}

TEST_CASE("What a call throws is the refusal's cause", "[cuda][captured][cuda-only]") {
  const Error thrown = refusal_of([](const CapturedCall& call) {
    enqueue_xor(call);
    throw std::runtime_error("no algorithm");
  });
  CHECK(thrown.code() == ErrorCode::failed);
  CHECK(thrown.sentence() == "It throws: no algorithm");
  const Error own = refusal_of([](const CapturedCall&) { throw Error(ErrorCode::unsupported, "There is no matmul."); });
  CHECK(own.code() == ErrorCode::unsupported);
  CHECK(own.sentence() == "There is no matmul.");
  CHECK(refusal_of([](const CapturedCall&) { throw 3; }).code() == ErrorCode::failed);
}

TEST_CASE("A call that ends its capture is refused", "[cuda][captured][cuda-only]") {
  const Error error = refusal_of([](const CapturedCall& call) {
    enqueue_xor(call);
    cudaGraph_t graph = nullptr;
    must(cudaStreamEndCapture(call.stream, &graph));
    must(cudaGraphDestroy(graph));
  });
  CHECK(says(error, "it ends the capture itself"));
}

TEST_CASE("An error of earlier is neither taken nor blamed on a call", "[cuda][captured][case-49][cuda-only]") {
  const CallingModel model;
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, std::size_t{1} << 45) != cudaSuccess);
  static_cast<void>(model.fragment.prepare({.slots = 2}));
  CHECK(cudaGetLastError() == cudaErrorMemoryAllocation);
}

TEST_CASE("A capture of another thread goes on while calls are recorded and refused",
          "[cuda][captured][capture][cuda-only]") {
  const Stream stream;
  void* memory = nullptr;
  must(cudaMalloc(&memory, kCount));
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  must(cudaMemsetAsync(memory, 1, kCount, stream));
  std::string error;
  std::thread([&] {
    try {
      PreparedModel pool = CallingModel().fragment.prepare({.slots = 2});
      if (infer(pool, fresh_bytes(kCount, 1)) != xored(fresh_bytes(kCount, 1), 0xff)) error = "another answer";
      static_cast<void>(
          refusal([] { static_cast<void>(CallingModel([](const CapturedCall&) {}).fragment.prepare()); }));
    } catch (const std::exception& caught) {
      error = caught.what();
    }
  }).join();
  CHECK(error.empty());
  CHECK(end_capture_of_one_node(stream));
  must(cudaFree(memory));
}

TEST_CASE("The first call of a process is recorded and refused rounds leave nothing behind",
          "[cuda][captured][case-28][cuda-only][fork]") {
  in_new_process([] {
    {
      PreparedModel first = CallingModel(enqueue_xor, 1 << 20).fragment.prepare();
      require(infer(first, fresh_bytes(kCount, 1)) == xored(fresh_bytes(kCount, 1), 0xff), 2);
    }
    const CallingModel bad(
        [](const CapturedCall& call) {
          enqueue_xor(call);
          void* memory = nullptr;
          must(cudaMalloc(&memory, 16));
        },
        1 << 20);
    const auto fail = [&] {
      try {
        static_cast<void>(bad.fragment.prepare());
      } catch (const Error& error) {
        return error.code() == ErrorCode::failed;
      }
      return false;
    };
    for (int round = 0; round < 10; ++round) require(fail(), 3);
    const std::uint64_t before = free_bytes();
    for (int round = 0; round < 200; ++round) require(fail(), 4);
    require(free_bytes() + (2 << 20) >= before, 5);
    PreparedModel last = CallingModel(enqueue_xor, 1 << 20).fragment.prepare();
    require(infer(last, fresh_bytes(kCount, 2)) == xored(fresh_bytes(kCount, 2), 0xff), 6);
    std::_Exit(0);
  });
}

TEST_CASE("A call may launch kernels that nobody has launched before", "[cuda][captured][case-29][cuda-only][fork]") {
  const auto untouched = [] {
    for (const auto& launch : {launch_untouched, launch_untouched_variant}) {
      TestSession test;
      const auto y = test.session.allocate<std::uint32_t>({1}, {.label = "y"});
      const Command call = captured("untouched", {y.read_write()}, 0, [&](const CapturedCall& given) {
        launch(given.stream, given.get<std::uint32_t*>(0));
      });
      const ModelFragment fragment =
          test.freeze().fragment(trusted, {.outputs = {y}, .commands = {fill(y, 0), call, call}});
      PreparedModel pool = fragment.prepare();
      std::optional<ModelSlot> slot = pool.try_acquire();
      Inference run = std::move(*slot).submit();
      require(run.wait(in_a_minute()), 2);
      require(run.output<std::uint32_t>(0)[0] == (launch == launch_untouched ? 6u : 8u), 3);
    }
    std::_Exit(0);
  };
  for (const char* mode : {"LAZY", "EAGER"}) {
    ::setenv("CUDA_MODULE_LOADING", mode, 1);
    in_new_process(untouched);
  }
  ::unsetenv("CUDA_MODULE_LOADING");
}

TEST_CASE("CUB and Thrust run as calls with the workspace as their temporary storage", "[cuda][captured][cuda-only]") {
  constexpr int kElements = 10000;
  std::size_t sum_bytes = 0;
  must(cub_sum(nullptr, sum_bytes, nullptr, nullptr, kElements, nullptr));
  constexpr std::size_t kScanBytes = 1 << 20;
  TestSession test;
  const auto x = test.session.allocate<float>({kElements}, {.label = "x"});
  const auto scanned = test.session.allocate<float>({kElements}, {.label = "scanned"});
  const auto sum = test.session.allocate<float>({1}, {.label = "sum"});
  const Command scan = captured("scan", {x.read(), scanned.write()}, kScanBytes, [](const CapturedCall& call) {
    thrust_scan(call.workspace, call.workspace_bytes, call.get<const float*>(0), call.get<float*>(1), kElements,
                call.stream);
  });
  const Command add = captured("sum", {scanned.read(), sum.write()}, sum_bytes, [](const CapturedCall& call) {
    std::size_t bytes = call.workspace_bytes;
    must(cub_sum(call.workspace, bytes, call.get<const float*>(0), call.get<float*>(1), kElements, call.stream));
  });
  PreparedModel pool = test.freeze()
                           .fragment(trusted, {.inputs = {x}, .outputs = {scanned, sum}, .commands = {scan, add}})
                           .prepare({.slots = 2});
  for (int round = 1; round < 5; ++round) {
    std::optional<ModelSlot> slot = pool.acquire(in_a_minute());
    REQUIRE(slot.has_value());
    std::ranges::fill(slot->input<float>(0), 0.0f);
    slot->input<float>(0)[kElements - 10] = static_cast<float>(round);
    Inference run = std::move(*slot).submit();
    REQUIRE(run.wait(in_a_minute()));
    CHECK(run.output<float>(0)[kElements - 11] == 0.0f);
    CHECK(run.output<float>(0)[kElements - 1] == static_cast<float>(round));
    CHECK(run.output<float>(1)[0] == static_cast<float>(10 * round));
  }
}

namespace {

/// One thread prepares and drops pools with a call, one works beside it, one runs requests.
void record_beside(std::chrono::seconds span, const std::function<void()>& work) {
  const Context context = Context::open(Device::cuda());
  PreparedModel runs = CallingModel(TestSession(context), enqueue_xor, 0).fragment.prepare({.slots = 2});
  const ModelFragment fragment = CallingModel(TestSession(context), enqueue_xor, 4096).fragment;
  work_beside_one_another(
      span, {[&](std::uint64_t) { static_cast<void>(fragment.prepare({.slots = 2})); }, [&](std::uint64_t) { work(); },
             [&](std::uint64_t turn) {
               const Values input = fresh_bytes(kCount, turn);
               if (infer(runs, input) != xored(input, 0xff)) throw std::runtime_error("A run gave another answer.");
             }});
}

void allocate_and_synchronize() {
  void* memory = nullptr;
  must(cudaMalloc(&memory, 1 << 20));
  // The driver may refuse it in the moment of a recording; the recording goes well all the same.
  const cudaError_t synchronized = cudaDeviceSynchronize();
  if (synchronized != cudaErrorStreamCaptureUnsupported) must(synchronized);
  static_cast<void>(cudaGetLastError());
  must(cudaFree(memory));
}

}  // namespace

TEST_CASE("Calls are recorded while another thread synchronizes the device and allocates",
          "[cuda][captured][capture][case-25][cuda-only]") {
  record_beside(std::chrono::seconds(3), allocate_and_synchronize);
}

TEST_CASE("Calls are recorded for a minute beside a thread that synchronizes the device and allocates",
          "[cuda][captured][capture][case-25][cuda-only][long]") {
  record_beside(std::chrono::minutes(1), allocate_and_synchronize);
}

}  // namespace weft::test
