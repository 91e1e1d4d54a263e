// The examples of docs/interop.md, as they stand there.

#include "catch.h"
#include "support/model_fixture.h"
#include <weft/cuda.h>
#include <weft/dlpack.h>
#include <weft/weft.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace {

void must(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// Runs a request between a producer's and a consumer's work on `stream`; the host waits for nothing.
void serve(weft::ModelSlot slot, const weft::DeviceTensor& input, void* result, cudaStream_t stream) {
  weft::cuda::wait_for(slot, stream);  // What `stream` has queued by now writes the input.
  weft::Inference run = std::move(slot).submit({input}, {.outputs = weft::Side::device});
  weft::cuda::wait_for(stream, run.completion());
  const weft::DeviceTensor output = run.tensor(0);
  void* from = weft::cuda::address(output);
  must(cudaMemcpyAsync(result, from, output.desc().bytes(), cudaMemcpyDeviceToDevice, stream));
  weft::cuda::release(std::move(run), stream);  // The slot's next run follows the copy.
}

// Another library's work in its place among weft's.
weft::Completion normalize(const weft::Context& context, const weft::DeviceTensor& x, cudaStream_t stream) {
  return weft::cuda::scoped(context, stream, {{x, weft::Access::read_write}}, [&](cudaStream_t queue) {
    must(cudaMemsetAsync(weft::cuda::address(x), 0, x.desc().bytes(), queue));
  });
}

// A request that follows what is queued on `stream`, and everything that a host could still do to stop it.
weft::Inference follow(weft::ModelSlot slot, const weft::Context& context, cudaStream_t stream) {
  return std::move(slot).submit({.after = {weft::cuda::completion(context, stream)}});
}

// Memory of another allocator, as a tensor.
weft::DeviceTensor adopt(const weft::Context& context, void* memory, std::uint64_t count) {
  const weft::TensorDesc desc(weft::DType::u8, {count});
  const auto release = [memory] { static_cast<void>(cudaFree(memory)); };
  return context.adopt(weft::trusted, {memory, release}, desc.bytes(), "from elsewhere").tensor(desc);
}

// A model without weft: its graph in the caller's hands.
void leave(const weft::PreparedModel& model, const weft::ModelSlot& slot, cudaStream_t stream) {
  const weft::cuda::ModelGraph made = weft::cuda::graph(model, slot);
  cudaGraphExec_t executable = nullptr;
  must(cudaGraphInstantiate(&executable, made.graph, 0));
  must(cudaGraphLaunch(executable, stream));  // Reads made.inputs[0], writes made.outputs[0].
  must(cudaStreamSynchronize(stream));
  must(cudaGraphExecDestroy(executable));
  must(cudaGraphDestroy(made.graph));
}

// Out to PyTorch and the like, and in from there.
weft::dlpack::DLManagedTensorVersioned* lend(const weft::Inference& run, cudaStream_t consumer) {
  return weft::dlpack::export_tensor(run.tensor(0), consumer, {.read_only = true});
}
weft::DeviceTensor borrow(const weft::Context& context, weft::dlpack::DLManagedTensorVersioned* tensor,
                          cudaStream_t producer) {
  return weft::dlpack::import_tensor(context, tensor, producer);
}

}  // namespace

namespace weft::test {

TEST_CASE("The examples of interop run as they stand", "[cuda][interop][docs][cuda-only]") {
  constexpr std::uint64_t kCount = 1024;
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  {
    PreparedModel pool = XorModel(kCount).fragment.prepare(
        {.slots = 4, .forms = {{Side::host, Side::host}, {Side::device, Side::device}, {Side::host, Side::device}}});
    const Context& context = pool.context();
    const auto slot = [&] { return std::move(*pool.acquire(in_a_minute())); };
    const auto bytes_at = [&](const void* memory) {
      std::vector<std::uint8_t> bytes(kCount);
      must(cudaMemcpy(bytes.data(), memory, kCount, cudaMemcpyDefault));
      return bytes;
    };
    const auto all = [&](std::uint8_t value) { return std::vector<std::uint8_t>(kCount, value); };
    void* memory = nullptr;
    must(cudaMalloc(&memory, kCount));
    const DeviceTensor x = adopt(context, memory, kCount);
    const DeviceTensor result = context.tensor(x.desc());
    REQUIRE(normalize(context, x, stream).wait(in_a_minute()));
    serve(slot(), x, cuda::address(result), stream);
    must(cudaStreamSynchronize(stream));
    CHECK(bytes_at(cuda::address(result)) == all(0xff));

    ModelSlot next = slot();
    std::ranges::fill(next.input<std::uint8_t>(0), std::uint8_t{1});
    Inference run = follow(std::move(next), context, stream);
    CHECK(test::result(run) == all(0xfe));

    const ModelSlot left = slot();
    leave(pool, left, stream);

    Inference lent = std::move(*pool.acquire(in_a_minute())).submit({x}, {.outputs = Side::device});
    const DeviceTensor borrowed = borrow(context, lend(lent, stream), stream);
    REQUIRE(borrowed.wait(in_a_minute()));
    CHECK(bytes_at(cuda::address(borrowed)) == all(0xff));
  }
  must(cudaStreamDestroy(stream));
}

}  // namespace weft::test
