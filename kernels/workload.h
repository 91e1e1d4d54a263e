#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>

namespace weft::kernels {

/// One word that a launch rule takes.
struct WorkloadWord {
  std::string_view name;
  std::uint64_t limit = 0;  ///< The largest value that the kernel's parameter can carry.
};

/// Refuses, with `invalid`, a workload that has not exactly these words, each from 1 to its limit.
void check_workload(std::string_view kernel, std::span<const std::uint64_t> workload,
                    std::initializer_list<WorkloadWord> words);

/// Blocks that cover `count` elements at `each` a block; `count` is 1 at least.
[[nodiscard]] constexpr std::uint64_t blocks_for(std::uint64_t count, std::uint64_t each) noexcept {
  return (count - 1) / each + 1;
}

/// Several waves on the largest device; beyond it kernels stride by their grid.
inline constexpr std::uint64_t kMaxStridingBlocks = 4096;

/// Blocks that every CUDA device takes along the y and z axes of a grid.
inline constexpr std::uint64_t kMaxGridYZ = 65535;

}  // namespace weft::kernels
