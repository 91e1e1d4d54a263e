#include "catch.h"
#include "cuda/beside_others.h"
#include "cuda/capture.h"
#include "device/faults.h"
#include "device/registry.h"
#include "support/foreign_stream.h"
#include "support/requests.h"
#include <weft/cuda.h>
#include <weft/dlpack.h>
#include <weft/weft.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// Other people's CUDA streams, events and graphs in the process. What holds of them on any device:
// edges/foreign_stream_test.cpp.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 4096;
using Values = std::vector<std::uint8_t>;

void must(cudaError_t error) {
  if (error == cudaSuccess) return;
  static_cast<void>(cudaGetLastError());
  throw std::runtime_error(std::string("CUDA: ") + cudaGetErrorString(error));
}

Values repeated(std::uint8_t value) { return Values(kCount, value); }

void* pointer_to(const DeviceTensor& tensor) { return cuda::address(tensor); }

/// A stream of the test's own.
class Stream {
 public:
  explicit Stream(unsigned flags = cudaStreamNonBlocking) { must(cudaStreamCreateWithFlags(&stream_, flags)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    static_cast<void>(cudaStreamSynchronize(stream_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }
  operator cudaStream_t() const noexcept { return stream_; }  // NOLINT: stands for the stream

 private:
  cudaStream_t stream_ = nullptr;
};

/// Keeps a stream busy for a while: what overtakes it shows.
void delay(cudaStream_t stream) {
  must(cudaLaunchHostFunc(
      stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }, nullptr));
}

void fill(cudaStream_t stream, const DeviceTensor& tensor, int value) {
  delay(stream);
  must(cudaMemsetAsync(pointer_to(tensor), value, tensor.desc().bytes(), stream));
}

void copy(cudaStream_t stream, const DeviceTensor& to, const DeviceTensor& from) {
  delay(stream);
  must(cudaMemcpyAsync(pointer_to(to), pointer_to(from), from.desc().bytes(), cudaMemcpyDeviceToDevice, stream));
}

/// A capture of the test's own, in global mode, with one memset in it.
class Capture {
 public:
  explicit Capture(const DeviceTensor& tensor, unsigned flags = cudaStreamNonBlocking) : stream_(flags) {
    must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal));
    must(cudaMemsetAsync(pointer_to(tensor), 0, 64, stream_));
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() { static_cast<void>(end()); }

  [[nodiscard]] cudaStream_t stream() const noexcept { return stream_; }
  /// Ends it; true when it was not disturbed.
  bool end() {
    if (is_over_) return true;
    is_over_ = true;
    return end_capture_of_one_node(stream_);
  }

 private:
  Stream stream_;
  bool is_over_ = false;
};

struct Interop {
  XorModel model = XorModel(kCount);
  PreparedModel pool = model.fragment.prepare({.slots = 2, .forms = all_forms()});
  Context context = pool.context();
  DeviceTensor tensor = ready(context, repeated(0));
  DeviceTensor sink = ready(context, repeated(0));
};

/// Calls every function of weft/cuda.h that takes a stream on one that it must refuse.
void check_refused(Interop& test, cudaStream_t stream) {
  const auto is_invalid = [](const std::function<void()>& call) { return refusal(call).code() == ErrorCode::invalid; };
  std::optional<ModelSlot> slot = test.pool.try_acquire();
  Inference run = start(test.pool, kHostDevice, repeated(1));
  CHECK(is_invalid([&] { cuda::wait_for(*slot, stream); }));
  CHECK(is_invalid([&] { cuda::wait_for(stream, run.completion()); }));
  CHECK(is_invalid([&] { static_cast<void>(cuda::completion(test.context, stream)); }));
  CHECK(is_invalid([&] { cuda::release(std::move(run), stream); }));
  DeviceTensor lent = test.tensor;
  CHECK(is_invalid([&] { cuda::release(std::move(lent), stream); }));
  CHECK(is_invalid([&] {
    static_cast<void>(
        cuda::scoped(test.context, stream, {{test.tensor, Access::write}}, [](cudaStream_t) { FAIL("called"); }));
  }));
  CHECK(is_invalid([&] { static_cast<void>(dlpack::export_tensor(test.tensor, stream)); }));
}

/// Threads that make plans, run one, and synchronize and allocate as others do, for so long.
void work_beside_others(std::chrono::seconds span) {
  const Context context = Context::open(Device::cuda());
  PreparedModel runs = XorModel(TestSession(context), kCount, 0xff).fragment.prepare({.slots = 2});
  const ModelFragment fragment = XorModel(TestSession(context), kCount, 0x0f).fragment;
  work_beside_one_another(span, {[&](std::uint64_t) { static_cast<void>(fragment.prepare({.slots = 2})); },
                                 [](std::uint64_t) {
                                   void* memory = nullptr;
                                   must(cudaMalloc(&memory, 1 << 20));
                                   must(cudaDeviceSynchronize());
                                   must(cudaFree(memory));
                                 },
                                 [&](std::uint64_t turn) {
                                   const Values input = fresh_bytes(kCount, turn);
                                   if (infer(runs, input) != xored(input, 0xff))
                                     throw std::runtime_error("A run gave another answer.");
                                 }});
}

}  // namespace

TEST_CASE("Requests and CUDA streams of all kinds follow one another", "[cuda][interop][cuda-only]") {
  Interop test;
  const Stream plain;
  const Stream blocking(cudaStreamDefault);
  for (const cudaStream_t stream :
       {cudaStream_t{plain}, cudaStream_t{blocking}, cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread}) {
    for (std::uint8_t round = 1; round < 6; ++round) {
      fill(stream, test.tensor, round);
      std::optional<ModelSlot> slot = test.pool.acquire(in_a_minute());
      cuda::wait_for(*slot, stream);
      Inference run = std::move(*slot).submit({test.tensor}, {.outputs = Side::device});
      cuda::wait_for(stream, run.completion());
      copy(stream, test.sink, run.tensor(0));
      cuda::release(std::move(run), stream);
      const Completion done = cuda::completion(test.context, stream);
      REQUIRE(done.wait(in_a_minute()));
      CHECK(values(test.sink) == repeated(round ^ 0xff));
    }
  }
}

TEST_CASE("Requests follow CUDA events", "[cuda][interop][cuda-only]") {
  Interop test;
  const Stream stream;
  cudaEvent_t event = nullptr;
  must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  for (std::uint8_t round = 1; round < 6; ++round) {
    fill(stream, test.tensor, round);
    must(cudaEventRecord(event, stream));
    std::optional<ModelSlot> slot = test.pool.acquire(in_a_minute());
    if (round % 2 == 0) cuda::wait_for(*slot, event);
    std::vector<Completion> after;
    if (round % 2 == 1) after = {cuda::completion(test.context, event)};
    Inference run = std::move(*slot).submit({test.tensor}, {.outputs = Side::host, .after = after});
    CHECK(result(run) == repeated(round ^ 0xff));
  }
  must(cudaEventDestroy(event));
}

TEST_CASE("A scope has its place among weft's work on a GPU", "[cuda][interop][cuda-only][R40][T40]") {
  Interop test;
  const Stream stream;
  const DeviceTensor ones = ready(test.context, repeated(1));
  for (std::uint8_t round = 2; round < 8; ++round) {
    static_cast<void>(ones.copy_into(test.tensor));
    const Completion done =
        cuda::scoped(test.context, stream, {{test.tensor, Access::read_write}}, [&](cudaStream_t given) {
          CHECK(given == cudaStream_t{stream});
          CHECK(refusal([&] { static_cast<void>(ones.copy_into(test.tensor)); }).code() == ErrorCode::busy);
          delay(given);
          copy(given, test.sink, test.tensor);
          fill(given, test.tensor, round);
        });
    const DeviceTensor after = test.tensor.copy_into(test.context.tensor(test.tensor.desc()));
    CHECK(values(after) == repeated(round));
    REQUIRE(done.wait(in_a_minute()));
    CHECK(values(test.sink) == repeated(1));
  }
  CHECK_THROWS_AS(static_cast<void>(cuda::scoped(test.context, stream, {{test.tensor, Access::write}},
                                                 [&](cudaStream_t given) {
                                                   fill(given, test.tensor, 99);
                                                   throw std::out_of_range("no row");
                                                 })),
                  std::out_of_range);
  CHECK(values(test.tensor) == repeated(99));
}

TEST_CASE("A stream that is being captured is refused and its capture goes on", "[cuda][interop][cuda-only][capture]") {
  Interop test;
  Capture capture(test.sink);
  check_refused(test, capture.stream());
  CHECK(capture.end());
  // The slots and tensors serve on.
  Inference run = start(test.pool, kHostHost, repeated(3));
  CHECK(result(run) == repeated(3 ^ 0xff));
}

TEST_CASE("The legacy default stream is refused while the capture of a blocking stream holds it",
          "[cuda][interop][cuda-only][capture]") {
  Interop test;
  Capture capture(test.sink, cudaStreamDefault);
  check_refused(test, nullptr);
  CHECK(capture.end());
  CHECK(cuda::completion(test.context, cudaStream_t{nullptr}).wait(in_a_minute()));
}

TEST_CASE("An event of a capture is refused and the capture goes on", "[cuda][interop][cuda-only][capture]") {
  Interop test;
  Capture capture(test.sink);
  cudaEvent_t event = nullptr;
  must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  must(cudaEventRecord(event, capture.stream()));
  CHECK(refusal([&] { static_cast<void>(cuda::completion(test.context, event)); }).code() == ErrorCode::invalid);
  CHECK(capture.end());
  must(cudaEventDestroy(event));
  Inference run = start(test.pool, kHostHost, repeated(3));
  CHECK(result(run) == repeated(3 ^ 0xff));
}

TEST_CASE("Interop with one stream leaves the capture of another alone", "[cuda][interop][cuda-only][capture]") {
  Interop test;
  const Stream stream;
  Capture capture(test.sink);
  std::string error;
  const auto use = [&] {
    try {
      std::optional<ModelSlot> slot = test.pool.acquire(in_a_minute());
      cuda::wait_for(*slot, stream);
      Inference run = std::move(*slot).submit({test.tensor}, {.outputs = Side::device});
      cuda::wait_for(stream, run.completion());
      cuda::release(std::move(run), stream);
      const Completion scoped =
          cuda::scoped(test.context, stream, {{test.tensor, Access::write}},
                       [&](cudaStream_t given) { must(cudaMemsetAsync(pointer_to(test.tensor), 1, 64, given)); });
      static_cast<void>(cuda::completion(test.context, stream).wait(in_a_minute()));
      static_cast<void>(scoped.wait(in_a_minute()));
      dlpack::DLManagedTensorVersioned* managed = dlpack::export_tensor(test.tensor, stream);
      managed->deleter(managed);
    } catch (const std::exception& caught) {
      error = caught.what();
    }
  };
  SECTION("on its thread") { use(); }
  SECTION("on another thread") { std::thread(use).join(); }
  CHECK(error.empty());
  CHECK(capture.end());
}

TEST_CASE("The per-thread default stream cannot be a consumer's", "[cuda][dlpack][cuda-only]") {
  Interop test;
  CHECK(refusal([&] { static_cast<void>(dlpack::export_tensor(test.tensor, cudaStreamPerThread)); }).code() ==
        ErrorCode::invalid);
}

TEST_CASE("A graph that is handed out runs as any CUDA graph", "[cuda][interop][cuda-only]") {
  Interop test;
  const Stream stream;
  const std::optional<ModelSlot> slot = test.pool.try_acquire();
  const cuda::ModelGraph made = cuda::graph(test.pool, *slot);
  cudaGraphExec_t executable = nullptr;
  must(cudaGraphInstantiate(&executable, made.graph, 0));
  must(cudaGraphDestroy(made.graph));
  for (std::uint64_t round = 0; round < 3; ++round) {
    const Values input = fresh_bytes(kCount, round);
    std::ranges::copy(input, static_cast<std::uint8_t*>(made.inputs.at(0)));
    must(cudaGraphLaunch(executable, stream));
    must(cudaStreamSynchronize(stream));
    const auto* output = static_cast<const std::uint8_t*>(made.outputs.at(0));
    CHECK(Values(output, output + kCount) == xored(input, 0xff));
  }
  must(cudaGraphExecDestroy(executable));
}

TEST_CASE("A large output that a slow stream copies is whole though its lease went at once",
          "[cuda][interop][R22][case-13][cuda-only][big]") {
  constexpr std::uint64_t kBytes = std::uint64_t{256} << 20;
  constexpr std::uint64_t kPiece = 4096;
  PreparedModel pool = XorModel(kBytes).fragment.prepare({.forms = {kDeviceDevice}});
  const Context& context = pool.context();
  const Stream stream;
  std::vector<DeviceTensor> inputs;
  for (const int value : {0x11, 0x22}) {
    inputs.push_back(context.tensor(bytes_desc(kBytes)));
    REQUIRE(inputs.back().wait(in_a_minute()));
    must(cudaMemset(pointer_to(inputs.back()), value, kBytes));
  }
  must(cudaDeviceSynchronize());
  const DeviceTensor sink = context.tensor(bytes_desc(kBytes));
  REQUIRE(sink.wait(in_a_minute()));
  const auto piece_at = [&](std::uint64_t offset) {
    Values bytes(kPiece);
    must(cudaMemcpy(bytes.data(), static_cast<std::uint8_t*>(pointer_to(sink)) + offset, kPiece,
                    cudaMemcpyDeviceToHost));
    return bytes;
  };
  std::optional<Inference> next;
  for (std::uint64_t round = 0; round < 200; ++round) {
    const std::uint8_t expected = round % 2 == 0 ? 0x11 ^ 0xff : 0x22 ^ 0xff;
    std::optional<ModelSlot> slot = pool.acquire(in_a_minute());
    REQUIRE(slot.has_value());
    Inference run = std::move(*slot).submit({inputs[round % 2]});
    REQUIRE(run.wait(in_a_minute()));
    must(cudaMemcpyAsync(pointer_to(sink), pointer_to(run.tensor(0)), kBytes, cudaMemcpyDeviceToDevice, stream));
    must(cudaMemcpyAsync(pointer_to(sink), pointer_to(run.tensor(0)), kBytes, cudaMemcpyDeviceToDevice, stream));
    cuda::release(std::move(run), stream);
    slot = pool.try_acquire();
    REQUIRE(slot.has_value());
    next = std::move(*slot).submit({inputs[(round + 1) % 2]});
    must(cudaStreamSynchronize(stream));
    for (const std::uint64_t offset : {std::uint64_t{0}, kBytes / 2, kBytes - kPiece})
      CHECK(piece_at(offset) == Values(kPiece, expected));
    REQUIRE(next->wait(in_a_minute()));
    next.reset();
  }
}

TEST_CASE("Plans are made and run while another thread synchronizes the device and allocates",
          "[cuda][interop][case-25][cuda-only]") {
  work_beside_others(std::chrono::seconds(3));
}

TEST_CASE("Plans are made and run for a minute beside a thread that synchronizes the device and allocates",
          "[cuda][interop][case-25][cuda-only][long]") {
  work_beside_others(std::chrono::minutes(1));
}

TEST_CASE("An error that somebody else left behind is neither taken nor blamed on good calls",
          "[cuda][interop][case-49][cuda-only]") {
  const auto leave_error = [] {
    void* memory = nullptr;
    if (cudaMalloc(&memory, std::size_t{1} << 40) == cudaSuccess) throw std::runtime_error("There is 1 TiB to be had.");
  };
  const auto is_left = [] { return cudaPeekAtLastError() == cudaErrorMemoryAllocation; };
  const auto counting = std::make_shared<CountingDevice>(open_device(Device::cuda()));
  const ScopedDevice scoped(Device::cuda(), counting);
  const Stream stream;
  leave_error();
  std::optional<XorModel> model(std::in_place, kCount);
  CHECK(is_left());
  leave_error();
  std::optional<PreparedModel> pool = model->fragment.prepare({.slots = 2});
  CHECK(is_left());
  const std::uint64_t instantiated = counting->count(Verb::instantiate);
  for (std::uint64_t round = 0; round < 3; ++round) {
    leave_error();
    std::optional<ModelSlot> slot = pool->acquire(in_a_minute());
    REQUIRE(slot.has_value());
    std::ranges::copy(fresh_bytes(kCount, round), slot->input<std::uint8_t>(0).begin());
    leave_error();
    cuda::wait_for(*slot, stream);
    leave_error();
    Inference run = std::move(*slot).submit();
    CHECK(result(run) == xored(fresh_bytes(kCount, round), 0xff));
    leave_error();
    cuda::release(std::move(run), stream);
    CHECK(is_left());
  }
  CHECK(counting->count(Verb::instantiate) == instantiated);
  leave_error();
  check(counting->trim(0), "trim");
  pool.reset();
  model.reset();
  CHECK(is_left());
  static_cast<void>(cudaGetLastError());
}

}  // namespace weft::test
