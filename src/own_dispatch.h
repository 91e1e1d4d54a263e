#pragma once

#include "loaded_kernel.h"
#include "operation.h"
#include <weft/kernel.h>

#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

namespace weft {

/// A launch of one of weft's own kernels; each argument is a place or a scalar.
[[nodiscard]] DispatchOperation own_dispatch(const std::shared_ptr<const LoadedKernel>& kernel, Dim3 grid,
                                             const std::vector<std::variant<Location, std::uint64_t>>& arguments);

/// What a copy between two places does to their bytes.
[[nodiscard]] std::vector<ByteUse> copy_uses(const Location& destination, const Location& source, std::uint64_t bytes);

/// Turns a fill into a launch of weft's fill kernel: for devices that refuse memset nodes on memory of a pool.
void fill_by_kernel(Operation& operation, const std::shared_ptr<const LoadedKernel>& kernel);

}  // namespace weft
