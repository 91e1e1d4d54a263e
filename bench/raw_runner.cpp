#include "raw_runner.h"

#include "raw_kernels.h"

#include <algorithm>
#include <atomic>
#include <future>
#include <span>
#include <utility>

namespace weft::bench {

namespace {

constexpr std::size_t kLine = 128;  // What the flag has for itself.

std::size_t whole_lines(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

Pinned pinned(std::size_t bytes) {
  void* memory = nullptr;
  cuda_check(cudaHostAlloc(&memory, bytes, cudaHostAllocMapped));
  std::fill_n(static_cast<std::byte*>(memory), bytes, std::byte{});
  return Pinned(static_cast<std::byte*>(memory));
}

CudaHandle<cudaStream_t> create_stream() {
  cudaStream_t stream = nullptr;
  cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return CudaHandle<cudaStream_t>(stream);
}

}  // namespace

struct RawRunner::Slot {
  Slot(std::size_t floats_in, std::size_t floats_out)
      : input_floats(floats_in),
        answer_floats(floats_out),
        answer_offset(whole_lines(floats_in * sizeof(float))),
        flag_offset(answer_offset + whole_lines(floats_out * sizeof(float))),
        staging(pinned(flag_offset + kLine)),
        input(device_floats(floats_in)),
        counter(device_floats(sizeof(std::uint64_t) / sizeof(float))),
        stream(create_stream()) {}
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  ~Slot() { cudaStreamSynchronize(stream.get()); }

  /// `graph` is new, or rewound and of another slot's model.
  void build(RawGraph& graph, const RecordRaw& record) {
    constexpr std::uint32_t kCopyThreads = 256;
    constexpr std::uint32_t kMaxThreads = 1024;
    constexpr std::uint32_t kVector = 4;
    constexpr std::uint32_t kWarp = 32;
    const auto in_floats = static_cast<std::uint32_t>(input_floats);
    const auto out_floats = static_cast<std::uint32_t>(answer_floats);
    const auto vectors = [](std::uint32_t floats) { return (floats + kVector - 1) / kVector; };

    float* to = input.get();
    const std::byte* from = staging.get();
    const dim3 grid_in{(vectors(in_floats) + kCopyThreads - 1) / kCopyThreads, 1, 1};
    const cudaGraphNode_t copied_in =
        graph.kernel(raw_copy_in(), grid_in, {kCopyThreads, 1, 1}, {&to, &from, &in_floats}, {});

    model = record(graph, input.get(), copied_in);

    std::byte* answer = staging.get() + answer_offset;
    std::byte* flag = staging.get() + flag_offset;
    float* count = counter.get();
    const std::uint32_t threads = std::min((vectors(out_floats) + kWarp - 1) / kWarp * kWarp, kMaxThreads);
    graph.kernel(raw_copy_out_and_flag(), {1, 1, 1}, {threads, 1, 1},
                 {&answer, &model.answer, &out_floats, &count, &flag}, {model.last});
    executable = graph.instantiate();
    cuda_check(cudaGraphUpload(executable.get(), stream.get()));
  }

  [[nodiscard]] std::span<float> input_span() const { return {reinterpret_cast<float*>(staging.get()), input_floats}; }
  [[nodiscard]] std::span<const float> answer_span() const {
    return {reinterpret_cast<const float*>(staging.get() + answer_offset), answer_floats};
  }

  void wait() const {
    std::atomic_ref flag(*reinterpret_cast<std::uint64_t*>(staging.get() + flag_offset));
    for (std::uint64_t spins = 1; flag.load(std::memory_order_acquire) < runs; ++spins) {
      // Seldom enough to cost nothing: a lost device never stores the flag.
      constexpr std::uint64_t kSpinsPerQuery = 1 << 24;
      if (spins % kSpinsPerQuery == 0) {
        if (const cudaError_t error = cudaStreamQuery(stream.get()); error != cudaErrorNotReady) cuda_check(error);
      }
    }
  }

  std::size_t input_floats;
  std::size_t answer_floats;
  std::size_t answer_offset;  // Bytes in `staging`, behind the input.
  std::size_t flag_offset;
  Pinned staging;
  DeviceFloats input;
  DeviceFloats counter;  // One 64-bit word.
  RawModel model;
  CudaHandle<cudaStream_t> stream;
  CudaHandle<cudaGraphExec_t> executable;
  std::uint64_t runs = 0;
};

RawRunner::RawRunner(std::size_t input_floats, std::size_t answer_floats, std::uint32_t slots, RecordRaw record,
                     std::uint32_t threads)
    : record_(std::move(record)) {
  for (std::uint32_t i = 0; i < slots; ++i) slots_.push_back(std::make_unique<Slot>(input_floats, answer_floats));
  int gpu = 0;
  cuda_check(cudaGetDevice(&gpu));
  // Each thread builds one graph and points it at one of its slots after another.
  const auto build_share = [&](std::uint32_t thread) {
    cuda_check(cudaSetDevice(gpu));
    RawGraph graph;
    for (std::uint32_t i = thread; i < slots; i += threads) {
      graph.rewind();
      slots_[i]->build(graph, record_);
    }
  };
  std::vector<std::future<void>> others;
  for (std::uint32_t thread = 1; thread < threads; ++thread)
    others.push_back(std::async(std::launch::async, build_share, thread));
  build_share(0);
  for (std::future<void>& other : others) other.get();
  // What filled the memory ran on the default stream, which the slots' do not wait for.
  cuda_check(cudaDeviceSynchronize());
}

RawRunner::~RawRunner() = default;

std::span<float> RawRunner::acquire() {
  slots_[next_]->wait();
  return slots_[next_]->input_span();
}

void RawRunner::submit() {
  Slot& slot = *slots_[next_];
  cuda_check(cudaGraphLaunch(slot.executable.get(), slot.stream.get()));
  ++slot.runs;
  next_ = next_ + 1 == slots_.size() ? 0 : next_ + 1;
}

std::span<const float> RawRunner::wait() {
  slots_[oldest_]->wait();
  return slots_[oldest_]->answer_span();
}

void RawRunner::release() { oldest_ = oldest_ + 1 == slots_.size() ? 0 : oldest_ + 1; }

}  // namespace weft::bench
