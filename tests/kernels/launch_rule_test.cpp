#include "catch.h"
#include <weft/kernels.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kMaxU32 = std::numeric_limits<std::uint32_t>::max();
constexpr std::uint64_t kMaxU64 = std::numeric_limits<std::uint64_t>::max();

Grid grid_of(const KernelSpec& spec, std::vector<std::uint64_t> words) {
  const LaunchConfig launch = spec.launch(words);
  CHECK(launch.dynamic_shared_bytes == 0);
  return launch.grid;
}

std::string refusal_of(const KernelSpec& spec, std::vector<std::uint64_t> words) {
  const Error error = refusal([&] { static_cast<void>(spec.launch(words)); });
  CHECK(error.code() == ErrorCode::invalid);
  return error.sentence();
}

}  // namespace

TEST_CASE("A linear layer takes a block for each 8 rows and 16 outputs", "[kernels]") {
  for (const KernelSpec& spec :
       {kernels::linear_spec(), kernels::linear_relu_spec(), kernels::linear_unbiased_spec()}) {
    INFO(spec.label);
    CHECK(grid_of(spec, {1, 1}) == grid(1, 1));
    CHECK(grid_of(spec, {8, 16}) == grid(1, 1));
    CHECK(grid_of(spec, {9, 16}) == grid(2, 1));
    CHECK(grid_of(spec, {8, 17}) == grid(1, 2));
    CHECK(grid_of(spec, {32, 128}) == grid(4, 8));
  }
}

TEST_CASE("A split linear layer takes a layer of blocks for each split", "[kernels]") {
  const KernelSpec spec = kernels::linear_split_spec();
  CHECK(grid_of(spec, {32, 10, 1}) == grid(4, 1, 1));
  CHECK(grid_of(spec, {32, 10, 7}) == grid(4, 1, 7));
}

TEST_CASE("The largest workload stays within the limits of every grid axis", "[kernels]") {
  CHECK(grid_of(kernels::linear_spec(), {kMaxU32, kMaxU32}) == grid(536870912, 65535));
  CHECK(grid_of(kernels::linear_split_spec(), {kMaxU32, kMaxU32, kMaxU32}) == grid(536870912, 65535, 65535));
  CHECK(grid_of(kernels::add_spec(), {kMaxU64 / 4}) == grid(4096));
}

TEST_CASE("An elementwise kernel takes a block for each 1024 elements up to 4096 blocks", "[kernels]") {
  for (const KernelSpec& spec : {kernels::add_spec(), kernels::scale_spec()}) {
    INFO(spec.label);
    CHECK(grid_of(spec, {1}) == grid(1));
    CHECK(grid_of(spec, {1024}) == grid(1));
    CHECK(grid_of(spec, {1025}) == grid(2));
    CHECK(grid_of(spec, {4096 * 1024}) == grid(4096));
    CHECK(grid_of(spec, {4096 * 1024 + 1}) == grid(4096));
  }
}

TEST_CASE("A kernel that gives each row to a warp takes a block for each 4 rows up to 4096 blocks", "[kernels]") {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    for (const KernelSpec& spec : {kernels::layer_norm_spec(dtype), kernels::layer_norm_residual_spec(dtype)}) {
      INFO(spec.symbol);
      CHECK(grid_of(spec, {1}) == grid(1));
      CHECK(grid_of(spec, {5}) == grid(2));
      CHECK(grid_of(spec, {kMaxU32}) == grid(4096));
    }
    CHECK(grid_of(kernels::embedding_spec(dtype), {2, 16}) == grid(8));
    CHECK(grid_of(kernels::embedding_spec(dtype), {3, 11}) == grid(9));
    CHECK(grid_of(kernels::embedding_spec(dtype), {kMaxU32, kMaxU32}) == grid(4096));
  }
}

TEST_CASE("A gelu takes a block for each 256 vectors up to 4096 blocks", "[kernels]") {
  CHECK(grid_of(kernels::gelu_spec(DType::f32), {32, 64}) == grid(2));
  CHECK(grid_of(kernels::gelu_spec(DType::f16), {32, 64}) == grid(1));
  CHECK(grid_of(kernels::gelu_spec(DType::bf16), {1, 2049}) == grid(2));
  CHECK(grid_of(kernels::gelu_spec(DType::bf16), {kMaxU32, kMaxU32}) == grid(4096));
}

TEST_CASE("A mean takes a block for each sequence up to 4096 blocks", "[kernels]") {
  CHECK(grid_of(kernels::mean_pool_spec(DType::f16), {32}) == grid(32));
  CHECK(grid_of(kernels::mean_pool_spec(DType::f16), {kMaxU32}) == grid(4096));
}

TEST_CASE("Attention takes a block for each tile of queries of each head of each sequence", "[kernels]") {
  CHECK(grid_of(kernels::attention_spec(DType::f16, 32), {8, 128, 12, 32}) == grid(2, 12, 8));
  CHECK(grid_of(kernels::attention_spec(DType::bf16, 64), {1, 65, 1, 33}) == grid(2, 1, 1));
  CHECK(grid_of(kernels::attention_spec(DType::f32, 32), {8, 128, 12, 32}) == grid(8, 12, 8));
  CHECK(grid_of(kernels::attention_spec(DType::f16, 32), {kMaxU32, kMaxU32, kMaxU32, 32}) ==
        grid(67108864, 65535, 65535));
}

TEST_CASE("A skinny linear layer takes the smallest tiles that leave room for the blocks of the next kernel",
          "[kernels]") {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    for (const KernelSpec& spec : {kernels::linear_skinny_spec(dtype), kernels::linear_skinny_gelu_spec(dtype)}) {
      INFO(spec.symbol);
      CHECK(grid_of(spec, {1, 1}) == grid(1, 1));
      CHECK(grid_of(spec, {16, 1056}) == grid(1, 132));  // tiles of 16 x 8
      CHECK(grid_of(spec, {17, 384}) == grid(2, 48));
      CHECK(grid_of(spec, {16, 1057}) == grid(1, 67));  // 32 x 16
      CHECK(grid_of(spec, {32, 8192}) == grid(1, 512));
      CHECK(grid_of(spec, {33, 2112}) == grid(2, 132));
      CHECK(grid_of(spec, {33, 2113}) == grid(1, 67));  // 64 x 32
      CHECK(grid_of(spec, {128, 1057}) == grid(2, 34));
      CHECK(grid_of(spec, {kMaxU32, kMaxU32}) == grid(67108864, 65535));
    }
  }
  CHECK(refusal_of(kernels::linear_skinny_spec(DType::f16), {0, 16}) ==
        "Workload word 0 (rows) is 0, and the launch rule of \"linear_skinny\" takes 1 to 4294967295.");
  CHECK(refusal_of(kernels::linear_skinny_gelu_spec(DType::f16), {16, kMaxU32 + 1}) ==
        "Workload word 1 (out) is 4294967296, and the launch rule of \"linear_skinny_gelu\" takes 1 to 4294967295.");
}

TEST_CASE("A head size that the attention kernel is too small for is refused", "[kernels]") {
  CHECK(refusal_of(kernels::attention_spec(DType::f16, 32), {1, 16, 12, 33}) ==
        "Workload word 3 (head_size) is 33, and the launch rule of \"attention_32\" takes 1 to 32.");
}

TEST_CASE("A workload with another number of words is refused", "[kernels]") {
  CHECK(refusal_of(kernels::linear_spec(), {32}) ==
        "The workload has 1 words, and the launch rule of \"linear\" takes 2 (rows, out).");
  CHECK(refusal_of(kernels::linear_relu_spec(), {32, 64, 128}) ==
        "The workload has 3 words, and the launch rule of \"linear_relu\" takes 2 (rows, out).");
  CHECK(refusal_of(kernels::linear_split_spec(), {32, 10}) ==
        "The workload has 2 words, and the launch rule of \"linear_split\" takes 3 (rows, out, splits).");
  CHECK(refusal_of(kernels::scale_spec(), {}) ==
        "The workload has 0 words, and the launch rule of \"scale\" takes 1 (count).");
}

TEST_CASE("A workload word of 0 is refused", "[kernels]") {
  CHECK(refusal_of(kernels::linear_unbiased_spec(), {0, 16}) ==
        "Workload word 0 (rows) is 0, and the launch rule of \"linear_unbiased\" takes 1 to 4294967295.");
  CHECK(refusal_of(kernels::linear_spec(), {32, 0}) ==
        "Workload word 1 (out) is 0, and the launch rule of \"linear\" takes 1 to 4294967295.");
  CHECK(refusal_of(kernels::linear_split_spec(), {32, 10, 0}) ==
        "Workload word 2 (splits) is 0, and the launch rule of \"linear_split\" takes 1 to 4294967295.");
  CHECK(refusal_of(kernels::add_spec(), {0}) ==
        "Workload word 0 (count) is 0, and the launch rule of \"add\" takes 1 to 4611686018427387903.");
}

TEST_CASE("A workload word that its parameter cannot carry is refused", "[kernels]") {
  CHECK(refusal_of(kernels::linear_spec(), {kMaxU32 + 1, 16}) ==
        "Workload word 0 (rows) is 4294967296, and the launch rule of \"linear\" takes 1 to 4294967295.");
  CHECK(refusal_of(kernels::linear_split_spec(), {32, 10, kMaxU64}) ==
        "Workload word 2 (splits) is 18446744073709551615, and the launch rule of \"linear_split\" takes 1 to "
        "4294967295.");
  CHECK(refusal_of(kernels::add_spec(), {kMaxU64 / 4 + 1}) ==
        "Workload word 0 (count) is 4611686018427387904, and the launch rule of \"add\" takes 1 to "
        "4611686018427387903.");
}

}  // namespace weft::test
