// The examples of the section "Library calls" of docs/kernels.md, as they stand there.

#include "catch.h"
#include "support/deadlines.h"
#include "support/device.h"
#include <weft/cublas.h>
#include <weft/cuda.h>
#include <weft/weft.h>

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

void must(cudaError_t error) {
  if (error != cudaSuccess) throw std::runtime_error(cudaGetErrorString(error));
}

// y [batch, hidden] = the first token of each sequence of x [batch, tokens, hidden], by a strided copy of CUDA's.
weft::Command first_tokens(const weft::TypedRegion<float>& x, const weft::TypedRegion<float>& y) {
  const std::uint64_t batch = y.desc.shape()[0];
  const std::uint64_t pitch = x.bytes / batch;
  const std::uint64_t bytes = y.bytes / batch;
  weft::Captured call;
  call.name = "first tokens";
  call.bindings = {x.read(), y.write()};
  call.identity = "first tokens " + std::to_string(batch) + " " + std::to_string(pitch) + " " + std::to_string(bytes);
  call.enqueue = [=](const weft::CapturedCall& slot) {
    must(cudaMemcpy2DAsync(slot.get<void*>(1), bytes, slot.get<const void*>(0), pitch, bytes, batch,
                           cudaMemcpyDeviceToDevice, slot.stream));
  };
  call.host = [=](const weft::CapturedCall& slot) {
    for (std::uint64_t i = 0; i < batch; ++i)
      std::memcpy(slot.get<std::byte*>(1) + i * bytes, slot.get<const std::byte*>(0) + i * pitch, bytes);
  };
  return call;
}

weft::PreparedModel classifier(const weft::Context& context, const weft::HostTensor& weight,
                               const weft::HostTensor& bias, std::uint64_t batch, std::uint64_t tokens) {
  weft::ModelSession session(context.device());
  const auto w = session.weight<float>(weight);
  const auto b = session.weight<float>(bias);
  const std::uint64_t classes = w.desc.shape()[0];
  const std::uint64_t hidden = w.desc.shape()[1];
  const auto x = session.allocate<float>({batch, tokens, hidden}, {.label = "x"});
  const auto first = session.allocate<float>({batch, hidden}, {.label = "first"});
  const auto y = session.allocate<float>({batch, classes}, {.label = "y"});
  const weft::cublas::Library library;  // A handle: the command keeps what it needs.
  const weft::cublas::LinearShape shape{.rows = batch, .in = hidden, .out = classes, .label = "classify"};
  return std::move(session)
      .freeze(context)
      .fragment(weft::trusted,
                {.inputs = {x},
                 .outputs = {y},
                 .commands = {first_tokens(x, first), weft::cublas::linear(library, shape, first, w, b, y)}})
      .prepare({.slots = 2});
}

}  // namespace

namespace weft::test {

TEST_CASE("The examples of library calls run as they stand", "[edges][captured][cublas][docs]") {
  constexpr std::uint64_t kBatch = 3;
  constexpr std::uint64_t kTokens = 5;
  constexpr std::uint64_t kHidden = 8;
  constexpr std::uint64_t kClasses = 4;
  // Small whole numbers, whose products and sums are exact.
  const auto numbers = [](std::uint64_t count, std::uint64_t step) {
    std::vector<float> values(count);
    for (std::uint64_t i = 0; i < count; ++i) values[i] = static_cast<float>(i * step % 7) - 3.0f;
    return values;
  };
  const std::vector<float> w = numbers(kClasses * kHidden, 3);
  const std::vector<float> b = numbers(kClasses, 5);
  PreparedModel pool = classifier(
      Context::open(test_device()), {TensorDesc(DType::f32, {kClasses, kHidden}), std::as_bytes(std::span(w)), "w"},
      {TensorDesc(DType::f32, {kClasses}), std::as_bytes(std::span(b)), "b"}, kBatch, kTokens);
  for (std::uint64_t round = 1; round < 6; ++round) {
    const std::vector<float> x = numbers(kBatch * kTokens * kHidden, round);
    std::vector<float> expected;
    for (std::uint64_t row = 0; row < kBatch; ++row) {
      for (std::uint64_t column = 0; column < kClasses; ++column) {
        float sum = b[column];
        for (std::uint64_t i = 0; i < kHidden; ++i) sum += x[row * kTokens * kHidden + i] * w[column * kHidden + i];
        expected.push_back(sum);
      }
    }
    std::optional<ModelSlot> slot = pool.acquire(in_a_minute());
    REQUIRE(slot.has_value());
    std::ranges::copy(x, slot->input<float>(0).begin());
    Inference run = std::move(*slot).submit();
    REQUIRE(run.wait(in_a_minute()));
    CHECK(std::ranges::equal(run.output<float>(0), expected));
  }
}

}  // namespace weft::test
