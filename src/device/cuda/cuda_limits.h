#pragma once

#include "device/cuda/primary_context.h"

namespace weft::cuda {

/// The GPU's fixed properties, all but `fill_nodes_on_pool_memory`. Throws `unsupported` for a GPU without unified
/// addressing or memory pools.
[[nodiscard]] DeviceLimits read_limits(PrimaryContext& context);

/// 90 for sm_90. Throws.
[[nodiscard]] std::uint32_t compute_capability(const Driver& driver, CUdevice device);

/// The oldest GPU that weft's own kernels are compiled for.
inline constexpr std::uint32_t kOldestComputeCapability = 80;

}  // namespace weft::cuda
