#include "images.h"
#include "row_block.h"
#include "shipped_spec.h"
#include "workload.h"
#include <weft/float16.h>
#include <weft/kernels.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace weft::kernels {
namespace {

constexpr std::uint64_t kMaxSize = std::numeric_limits<std::uint32_t>::max();

LaunchConfig token_rule(std::span<const std::uint64_t> workload) {
  check_workload("embedding", workload, {{"batch", kMaxSize}, {"sequence", kMaxSize}});
  const std::uint64_t tokens = workload[0] * workload[1];
  return {.grid = grid(std::min(blocks_for(tokens, row_block::kRows), kMaxStridingBlocks))};
}

template <class T>
struct Table {
  const T* rows = nullptr;
  std::uint32_t count = 0;

  [[nodiscard]] bool has(std::int64_t id) const { return id >= 0 && id < count; }
};

template <class T>
void embedding_reference(const HostLaunch& launch) {
  const auto* ids = launch.get<const std::int32_t*>(0);
  const auto* types = launch.get<const std::int32_t*>(1);
  const Table<T> words{launch.get<const T*>(2), launch.get<std::uint32_t>(9)};
  const Table<T> positions{launch.get<const T*>(3), launch.get<std::uint32_t>(10)};
  const Table<T> kinds{launch.get<const T*>(4), launch.get<std::uint32_t>(11)};
  auto* y = launch.get<T*>(5);
  const std::uint64_t sequence = launch.get<std::uint32_t>(7);
  const std::uint64_t hidden = launch.get<std::uint32_t>(8);

  for (std::uint64_t token = 0; token < launch.get<std::uint32_t>(6) * sequence; ++token) {
    const auto position = static_cast<std::int64_t>(token % sequence);
    const bool known = words.has(ids[token]) && positions.has(position) && kinds.has(types[token]);
    for (std::uint64_t i = 0; i < hidden; ++i) {
      const auto at = [&](const Table<T>& table, std::int64_t id) {
        return to_float(table.rows[static_cast<std::uint64_t>(id) * hidden + i]);
      };
      y[token * hidden + i] =
          from_float<T>(known ? at(words, ids[token]) + at(positions, position) + at(kinds, types[token])
                              : std::numeric_limits<float>::quiet_NaN());
    }
  }
}

}  // namespace

KernelSpec embedding_spec(DType dtype) {
  return spec_of_dtype("embedding", dtype, [dtype]<class T>() {
    return shipped_spec({.label = "embedding",
                         .dtype = dtype,
                         .image = {embedding_image(), "weft embedding"},
                         .threads = row_block::kThreads,
                         .parameters = parameters_of(
                             embedding<T>, {"ids", "types", "words", "positions", "kinds", "y", "batch", "sequence",
                                            "hidden", "word_count", "position_count", "kind_count"}),
                         .launch = token_rule,
                         .reference = embedding_reference<T>});
  });
}

}  // namespace weft::kernels
