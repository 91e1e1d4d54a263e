#include "catch.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/run_kernel.h"
#include <weft/kernels.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace weft::test {
namespace {

std::vector<KernelSpec> shipped_kernels() {
  std::vector<KernelSpec> specs{
      kernels::linear_spec(),       kernels::linear_relu_spec(), kernels::linear_unbiased_spec(),
      kernels::linear_split_spec(), kernels::add_spec(),         kernels::scale_spec()};
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    specs.insert(specs.end(), {kernels::embedding_spec(dtype), kernels::layer_norm_spec(dtype),
                               kernels::layer_norm_residual_spec(dtype), kernels::gelu_spec(dtype),
                               kernels::attention_spec(dtype, 32), kernels::attention_spec(dtype, 64),
                               kernels::attention_spec(dtype, 128), kernels::mean_pool_spec(dtype)});
  }
  for (const DType dtype : {DType::f16, DType::bf16}) {
    specs.insert(specs.end(), {kernels::linear_skinny_spec(dtype), kernels::linear_skinny_gelu_spec(dtype)});
  }
  return specs;
}

}  // namespace

TEST_CASE("A split linear layer reads and writes its accumulator and others only write their output", "[kernels]") {
  CHECK(kernels::linear_spec().parameters[3].access == Access::write);
  CHECK(kernels::linear_unbiased_spec().parameters[2].access == Access::write);
  CHECK(kernels::linear_split_spec().parameters[3].access == Access::read_write);
}

// That the code keeps the promise is checked in its PTX.
TEST_CASE("A shipped kernel promises to wait for its dependencies before it touches memory", "[kernels]") {
  for (const KernelSpec& spec : shipped_kernels()) {
    INFO(spec.symbol);
    CHECK(spec.programmatic);
  }
}

TEST_CASE("Every shipped kernel has a symbol of its own with its element type at the end", "[kernels]") {
  std::set<std::string> symbols;
  for (const KernelSpec& spec : shipped_kernels()) CHECK(symbols.insert(spec.symbol).second);
  CHECK(symbols.contains("weft_linear_f32"));
  CHECK(symbols.contains("weft_layer_norm_residual_bf16"));
  CHECK(symbols.contains("weft_attention_64_f16"));
}

TEST_CASE("A typed kernel of each element type makes the spec of its dtype", "[kernels]") {
  CHECK(kernels::gelu<float>.make().symbol == "weft_gelu_f32");
  CHECK(kernels::gelu<f16>.make().symbol == "weft_gelu_f16");
  CHECK(kernels::gelu<bf16>.make().symbol == "weft_gelu_bf16");
  CHECK(kernels::attention<bf16, 128>.make().symbol == "weft_attention_128_bf16");
  CHECK(kernels::linear_skinny<f16>.make().symbol == "weft_linear_skinny_f16");
  CHECK(kernels::linear_skinny_gelu<bf16>.make().symbol == "weft_linear_skinny_gelu_bf16");
  CHECK(kernels::gelu<f16>.make().parameters[0].element_size == 2);
  CHECK(kernels::mean_pool<f16>.make().parameters[2].element_size == 4);
}

TEST_CASE("An element type without a kernel is refused", "[kernels]") {
  const Error error = refusal([] { static_cast<void>(kernels::layer_norm_spec(DType::f64)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "There is no kernel \"layer_norm\" for f64, but for f32, f16 and bf16.");
  const Error half = refusal([] { static_cast<void>(kernels::linear_skinny_gelu_spec(DType::f32)); });
  CHECK(half.code() == ErrorCode::invalid);
  CHECK(half.sentence() == "There is no kernel \"linear_skinny_gelu\" for f32, but for f16 and bf16.");
}

TEST_CASE("The attention kernel is the smallest that takes the head size", "[kernels]") {
  const auto symbol = [](std::uint32_t head_size) { return kernels::attention_spec(DType::f16, head_size).symbol; };
  CHECK(symbol(1) == "weft_attention_32_f16");
  CHECK(symbol(32) == "weft_attention_32_f16");
  CHECK(symbol(33) == "weft_attention_64_f16");
  CHECK(symbol(64) == "weft_attention_64_f16");
  CHECK(symbol(65) == "weft_attention_128_f16");
  CHECK(symbol(128) == "weft_attention_128_f16");
}

TEST_CASE("A head size of 0 or beyond 128 is refused", "[kernels]") {
  for (const std::uint32_t head_size : {0u, 129u}) {
    const Error error = refusal([&] { static_cast<void>(kernels::attention_spec(DType::f32, head_size)); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == "The head size is " + std::to_string(head_size) + ", and attention takes 1 to 128.");
  }
}

// On the host device the two are one.
TEST_CASE("The compiled layout of every shipped kernel equals that of its host reference", "[kernels][cuda-only]") {
  const std::shared_ptr<DeviceApi> api = open_device(test_device());
  for (const KernelSpec& spec : shipped_kernels()) {
    INFO(spec.symbol);
    const CompiledKernel compiled = LoadedKernel(*api, spec).compiled();
    std::vector<std::uint32_t> sizes;
    for (const auto& parameter : compiled.parameters) sizes.push_back(parameter.size);
    CHECK(sizes == spec.host->parameter_sizes);
    CHECK(compiled.max_threads_per_block == spec.host->max_threads_per_block);
    CHECK(compiled.static_shared_bytes == spec.host->static_shared_bytes);
  }
}

}  // namespace weft::test
