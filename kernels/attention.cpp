#include "attention_block.h"
#include "images.h"
#include "shipped_spec.h"
#include "tokens.h"
#include "workload.h"
#include <weft/error.h>
#include <weft/float16.h>
#include <weft/kernels.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft::kernels {
namespace {

using namespace attention_block;

constexpr std::uint64_t kMaxSize = std::numeric_limits<std::uint32_t>::max();

/// A block a tile of queries. They stand on x, the axis without a low limit; on the others the kernel strides.
LaunchRule query_rule(std::string label, std::uint32_t queries, std::uint32_t max_head_size) {
  return [=, label = std::move(label)](std::span<const std::uint64_t> workload) -> LaunchConfig {
    check_workload(label, workload,
                   {{"batch", kMaxSize}, {"sequence", kMaxSize}, {"heads", kMaxSize}, {"head_size", max_head_size}});
    return {.grid = {blocks_for(workload[1], queries), std::min(workload[2], kMaxGridYZ),
                     std::min(workload[0], kMaxGridYZ)}};
  };
}

/// One head of one sequence; the sums are in f64.
template <class T>
struct Head {
  const T* q = nullptr;  // of token 0, as y
  const T* bias = nullptr;
  T* y = nullptr;
  std::size_t hidden = 0;
  std::size_t size = 0;
  std::size_t tokens = 0;

  [[nodiscard]] float query(std::size_t token, std::size_t i) const {
    return to_float(q[token * 3 * hidden + i]) + to_float(bias[i]);
  }
  // Its bias cancels in the softmax.
  [[nodiscard]] float key(std::size_t token, std::size_t i) const { return to_float(q[(token * 3 + 1) * hidden + i]); }
  [[nodiscard]] float value(std::size_t token, std::size_t i) const {
    return to_float(q[(token * 3 + 2) * hidden + i]);
  }

  /// The softmax of a query's scores.
  [[nodiscard]] std::vector<double> weights(std::size_t token, float scale) const {
    std::vector<double> weights(tokens);
    double max = -std::numeric_limits<double>::infinity();
    for (std::size_t other = 0; other < tokens; ++other) {
      for (std::size_t i = 0; i < size; ++i) weights[other] += static_cast<double>(query(token, i)) * key(other, i);
      weights[other] *= scale;
      max = std::max(max, weights[other]);
    }
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - max);
    for (double& weight : weights) weight /= sum;
    return weights;
  }

  void attend(std::size_t token, float scale) const {
    const std::vector<double> shares = weights(token, scale);
    for (std::size_t i = 0; i < size; ++i) {
      double result = to_float(bias[2 * hidden + i]);
      for (std::size_t other = 0; other < tokens; ++other) result += shares[other] * value(other, i);
      y[token * hidden + i] = from_float<T>(static_cast<float>(result));
    }
  }
};

template <class T>
void attention_reference(const HostLaunch& launch, std::uint32_t max_head_size) {
  const auto* lengths = launch.get<const std::int32_t*>(2);
  const auto sequence = launch.get<std::uint32_t>(5);
  const std::size_t heads = launch.get<std::uint32_t>(6);
  const std::size_t size = launch.get<std::uint32_t>(7);
  const auto scale = launch.get<float>(8);
  const std::size_t hidden = heads * size;
  if (size > max_head_size) return;
  for (std::size_t item = 0; item < launch.get<std::uint32_t>(4); ++item) {
    for (std::size_t index = 0; index < heads; ++index) {
      const Head<T> head{.q = launch.get<const T*>(0) + item * sequence * hidden * 3 + index * size,
                         .bias = launch.get<const T*>(1) + index * size,
                         .y = launch.get<T*>(3) + item * sequence * hidden + index * size,
                         .hidden = hidden,
                         .size = size,
                         .tokens = tokens_of(lengths[item], sequence)};
      for (std::size_t token = 0; token < head.tokens; ++token) head.attend(token, scale);
      for (std::size_t token = head.tokens; token < sequence; ++token) {
        std::fill_n(head.y + token * hidden, size, from_float<T>(0));
      }
    }
  }
}

struct Tiles {
  std::uint32_t queries = 0;
  std::uint32_t shared_bytes = 0;
};

template <class T, std::uint32_t MaxHeadSize>
constexpr Tiles tiles() {
  if constexpr (std::is_same_v<T, float>) return {kPlainQueries, kPlainSharedBytes<MaxHeadSize>};
  return {kTensorQueries, kTensorSharedBytes<MaxHeadSize>};
}

template <std::uint32_t MaxHeadSize>
KernelSpec make_spec(DType dtype) {
  const std::string label = fmt::format("attention_{}", MaxHeadSize);
  return spec_of_dtype(label, dtype, [&]<class T>() {
    return shipped_spec(
        {.label = label,
         .dtype = dtype,
         .image = {attention_image(), "weft attention"},
         .threads = kThreads,
         .static_shared_bytes = tiles<T, MaxHeadSize>().shared_bytes,
         .parameters = parameters_of(attention<T, MaxHeadSize>, {"qkv", "bias", "lengths", "y", "batch", "sequence",
                                                                 "heads", "head_size", "scale"}),
         .launch = query_rule(label, tiles<T, MaxHeadSize>().queries, MaxHeadSize),
         .reference = [](const HostLaunch& launch) { attention_reference<T>(launch, MaxHeadSize); }});
  });
}

}  // namespace

KernelSpec attention_spec(DType dtype, std::uint32_t head_size) {
  if (head_size == 0 || head_size > 128) {
    throw Error(ErrorCode::invalid, fmt::format("The head size is {}, and attention takes 1 to 128.", head_size));
  }
  if (head_size <= 32) return make_spec<32>(dtype);
  return head_size <= 64 ? make_spec<64>(dtype) : make_spec<128>(dtype);
}

}  // namespace weft::kernels
