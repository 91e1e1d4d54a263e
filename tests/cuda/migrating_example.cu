#include "cuda/migrating_example.h"
#include "support/deadlines.h"
#include <weft/cuda.h>
#include <weft/weft.h>

#include <cub/device/device_reduce.cuh>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

using weft::test::Shares;

void must(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

constexpr std::uint32_t kThreads = 256;

std::uint32_t blocks_of(std::uint32_t count) { return (count + kThreads - 1) / kThreads; }

__global__ void square(const float* x, float* energy, std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) energy[i] = x[i] * x[i];
}

__global__ void divide(const float* energy, const float* total, float* share, std::uint32_t* large,
                       std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  share[i] = energy[i] / *total;
  if (share[i] * static_cast<float>(count) > 2.0f) atomicAdd(large, 1u);
}

__global__ void decode(const std::uint8_t* signal, float* x, std::uint32_t count) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) x[i] = static_cast<float>(signal[i]);
}

// By hand: one request at a time, captured when the object is made.
class CapturedShares {
 public:
  explicit CapturedShares(std::uint32_t count) : count_(count) {
    const std::size_t bytes = count * sizeof(float);
    must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    must(cudaEventCreateWithFlags(&done_, cudaEventDisableTiming));
    must(cudaMallocHost(&x_host_, bytes));
    must(cudaMallocHost(&share_host_, bytes));
    must(cudaMallocHost(&large_host_, sizeof(std::uint32_t)));
    must(cudaMalloc(&x_, bytes));
    must(cudaMalloc(&energy_, bytes));
    must(cudaMalloc(&total_, sizeof(float)));
    must(cudaMalloc(&share_, bytes));
    must(cudaMalloc(&large_, sizeof(std::uint32_t)));
    must(cub::DeviceReduce::Sum(nullptr, scratch_bytes_, energy_, total_, count));
    must(cudaMalloc(&scratch_, scratch_bytes_));
    cudaGraph_t graph = nullptr;
    must(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal));
    must(cudaMemcpyAsync(x_, x_host_, bytes, cudaMemcpyHostToDevice, stream_));
    must(cudaMemsetAsync(large_, 0, sizeof(std::uint32_t), stream_));
    square<<<blocks_of(count), kThreads, 0, stream_>>>(x_, energy_, count);
    must(cub::DeviceReduce::Sum(scratch_, scratch_bytes_, energy_, total_, count, stream_));
    divide<<<blocks_of(count), kThreads, 0, stream_>>>(energy_, total_, share_, large_, count);
    must(cudaGetLastError());
    must(cudaMemcpyAsync(share_host_, share_, bytes, cudaMemcpyDeviceToHost, stream_));
    must(cudaMemcpyAsync(large_host_, large_, sizeof(std::uint32_t), cudaMemcpyDeviceToHost, stream_));
    must(cudaStreamEndCapture(stream_, &graph));
    must(cudaGraphInstantiate(&executable_, graph, 0));
    must(cudaGraphDestroy(graph));
  }
  CapturedShares(const CapturedShares&) = delete;
  CapturedShares& operator=(const CapturedShares&) = delete;
  ~CapturedShares() {
    static_cast<void>(cudaStreamSynchronize(stream_));
    static_cast<void>(cudaGraphExecDestroy(executable_));
    for (void* memory : std::initializer_list<void*>{x_, energy_, total_, share_, large_, scratch_})
      static_cast<void>(cudaFree(memory));
    for (void* memory : std::initializer_list<void*>{x_host_, share_host_, large_host_})
      static_cast<void>(cudaFreeHost(memory));
    static_cast<void>(cudaEventDestroy(done_));
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  Shares run(std::span<const float> x) {
    std::ranges::copy(x, x_host_);
    must(cudaGraphLaunch(executable_, stream_));
    must(cudaEventRecord(done_, stream_));
    must(cudaEventSynchronize(done_));
    return {std::vector<float>(share_host_, share_host_ + count_), *large_host_};
  }

 private:
  std::uint32_t count_;
  cudaStream_t stream_ = nullptr;
  cudaEvent_t done_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
  float* x_host_ = nullptr;
  float* share_host_ = nullptr;
  std::uint32_t* large_host_ = nullptr;
  float* x_ = nullptr;
  float* energy_ = nullptr;
  float* total_ = nullptr;
  float* share_ = nullptr;
  std::uint32_t* large_ = nullptr;
  void* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
};

// In weft: as many requests at a time as there are slots.
weft::PreparedModel make_shares(const weft::Context& context, std::uint32_t count, weft::PrepareOptions options) {
  weft::ModelSession session(context.device());
  const auto square_kernel = session.load(weft::kernel(&square, {.label = "square", .block = {kThreads}}));
  const auto divide_kernel = session.load(weft::kernel(&divide, {.label = "divide", .block = {kThreads}}));
  const auto x = session.allocate<float>({count}, {.label = "x"});
  const auto energy = session.allocate<float>({count}, {.label = "energy"});
  const auto total = session.allocate<float>({1}, {.label = "total"});
  const auto share = session.allocate<float>({count}, {.label = "share"});
  const auto large = session.allocate<std::uint32_t>({1}, {.label = "large"});
  std::size_t scratch_bytes = 0;
  must(cub::DeviceReduce::Sum(nullptr, scratch_bytes, static_cast<const float*>(nullptr), static_cast<float*>(nullptr),
                              count));
  const auto sum = [count](const weft::CapturedCall& call) {
    std::size_t bytes = call.workspace_bytes;
    must(cub::DeviceReduce::Sum(call.workspace, bytes, call.get<const float*>(0), call.get<float*>(1), count,
                                call.stream));
  };
  const weft::Grid blocks = weft::grid(blocks_of(count));
  return std::move(session)
      .freeze(context)
      .fragment(weft::trusted,
                {.inputs = {x},
                 .outputs = {share, large},
                 .commands = {weft::fill(large, 0), weft::dispatch(square_kernel, blocks, {x, energy, count}),
                              weft::captured("sum", {energy.read(), total.write()}, scratch_bytes, sum),
                              weft::dispatch(divide_kernel, blocks, {energy, total, share, large, count})},
                 .label = "shares"})
      .prepare(std::move(options));
}

Shares run(weft::PreparedModel& model, std::span<const float> x, weft::Deadline deadline) {
  std::optional<weft::ModelSlot> slot = model.acquire(deadline);
  if (!slot) throw std::runtime_error("No slot came free in time.");
  std::ranges::copy(x, slot->input<float>(0).begin());
  weft::Inference answer = std::move(*slot).submit();
  if (!answer.wait(deadline)) throw std::runtime_error("There was no answer in time.");
  const std::span<const float> share = answer.output<float>(0);
  return {std::vector<float>(share.begin(), share.end()), answer.output<std::uint32_t>(1)[0]};
}

// A model as one stage of a stream. The memory stays the caller's, and must live as long as this object.
class SharesStage {
 public:
  SharesStage(weft::PreparedModel model, float* x, float* share, std::uint32_t* large, std::uint32_t count)
      : model_(std::move(model)),
        x_(adopt(x, {weft::DType::f32, {count}})),
        results_{adopt(share, {weft::DType::f32, {count}}), adopt(large, {weft::DType::u32, {1}})} {}

  void enqueue(cudaStream_t stream, weft::Deadline deadline) {
    std::optional<weft::ModelSlot> slot = model_.acquire(deadline);
    if (!slot) throw std::runtime_error("No slot came free in time.");
    weft::cuda::wait_for(*slot, stream);  // The run follows what is queued by now: who writes x, who reads the results.
    const weft::Inference run = std::move(*slot).submit({x_}, {.outputs = weft::Side::device, .into = results_});
    weft::cuda::wait_for(stream, run.completion());  // What is queued from now on follows the run.
  }

 private:
  weft::DeviceTensor adopt(void* memory, const weft::TensorDesc& desc) const {
    return model_.context().adopt(weft::trusted, {.address = memory}, desc.bytes()).tensor(desc);
  }

  weft::PreparedModel model_;
  weft::DeviceTensor x_;
  std::vector<weft::DeviceTensor> results_;
};

// Without weft: the graph, and where it reads and writes.
Shares run_alone(const weft::cuda::ModelGraph& made, std::span<const float> x, cudaStream_t stream) {
  cudaGraphExec_t executable = nullptr;
  must(cudaGraphInstantiate(&executable, made.graph, 0));
  std::ranges::copy(x, static_cast<float*>(made.inputs[0]));  // Pinned memory of the slot.
  must(cudaGraphLaunch(executable, stream));
  must(cudaStreamSynchronize(stream));
  const auto* share = static_cast<const float*>(made.outputs[0]);
  Shares answer{std::vector<float>(share, share + x.size()), *static_cast<const std::uint32_t*>(made.outputs[1])};
  must(cudaGraphExecDestroy(executable));
  must(cudaGraphDestroy(made.graph));
  return answer;
}

}  // namespace

namespace weft::test {

namespace {

/// Memory that CUDA has given, and a stream, for the length of a test.
class Resources {
 public:
  Resources() { must(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  Resources(const Resources&) = delete;
  Resources& operator=(const Resources&) = delete;
  ~Resources() {
    static_cast<void>(cudaStreamSynchronize(stream_));
    for (void* memory : device_) static_cast<void>(cudaFree(memory));
    for (void* memory : host_) static_cast<void>(cudaFreeHost(memory));
    static_cast<void>(cudaStreamDestroy(stream_));
  }

  [[nodiscard]] cudaStream_t stream() const { return stream_; }
  template <class T>
  [[nodiscard]] T* device(std::size_t count) {
    void* memory = nullptr;
    must(cudaMalloc(&memory, count * sizeof(T)));
    device_.push_back(memory);
    return static_cast<T*>(memory);
  }
  template <class T>
  [[nodiscard]] T* host(std::size_t count) {
    void* memory = nullptr;
    must(cudaMallocHost(&memory, count * sizeof(T)));
    host_.push_back(memory);
    return static_cast<T*>(memory);
  }

 private:
  cudaStream_t stream_ = nullptr;
  std::vector<void*> device_;
  std::vector<void*> host_;
};

}  // namespace

std::vector<Shares> shares_by_hand(const Signals& signals) {
  CapturedShares captured(static_cast<std::uint32_t>(signals.at(0).size()));
  std::vector<Shares> answers;
  for (const auto& signal : signals) answers.push_back(captured.run(std::vector<float>(signal.begin(), signal.end())));
  return answers;
}

PreparedModel shares_model(const Context& context, std::uint32_t count, PrepareOptions options) {
  return make_shares(context, count, std::move(options));
}

Shares shares_of(PreparedModel& model, std::span<const float> x, Deadline deadline) { return run(model, x, deadline); }

std::vector<Shares> staged_shares(const PreparedModel& model, const Signals& signals) {
  const auto count = static_cast<std::uint32_t>(signals.at(0).size());
  Resources resources;
  const cudaStream_t stream = resources.stream();
  auto* signal_host = resources.host<std::uint8_t>(signals.size() * count);
  auto* share_host = resources.host<float>(signals.size() * count);
  auto* large_host = resources.host<std::uint32_t>(signals.size());
  auto* signal = resources.device<std::uint8_t>(count);
  auto* x = resources.device<float>(count);
  auto* share = resources.device<float>(count);
  auto* large = resources.device<std::uint32_t>(1);
  for (std::size_t i = 0; i < signals.size(); ++i) std::ranges::copy(signals[i], signal_host + i * count);

  SharesStage stage(model, x, share, large, count);
  for (std::size_t i = 0; i < signals.size(); ++i) {
    must(cudaMemcpyAsync(signal, signal_host + i * count, count, cudaMemcpyHostToDevice, stream));
    decode<<<blocks_of(count), kThreads, 0, stream>>>(signal, x, count);
    must(cudaGetLastError());
    stage.enqueue(stream, in_a_minute());
    must(cudaMemcpyAsync(share_host + i * count, share, count * sizeof(float), cudaMemcpyDeviceToHost, stream));
    must(cudaMemcpyAsync(large_host + i, large, sizeof(std::uint32_t), cudaMemcpyDeviceToHost, stream));
  }
  must(cudaStreamSynchronize(stream));
  std::vector<Shares> answers;
  for (std::size_t i = 0; i < signals.size(); ++i) {
    const float* first = share_host + i * count;
    answers.push_back({std::vector<float>(first, first + count), large_host[i]});
  }
  return answers;
}

Shares shares_without_weft(const PreparedModel& model, const ModelSlot& slot, std::span<const float> x) {
  const Resources resources;
  return run_alone(cuda::graph(model, slot), x, resources.stream());
}

}  // namespace weft::test
