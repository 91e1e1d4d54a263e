#pragma once

#include <cstdint>
#include <memory>
#include <optional>

namespace weft {
class DeviceApi;
}

namespace weft::cuda {

/// Opens a GPU: its primary context, and a memory pool of weft's own. Throws `unsupported` with the reason (no driver
/// library, no device, driver too old, no such ordinal, a GPU without memory pools).
[[nodiscard]] std::shared_ptr<DeviceApi> make_cuda_device(std::uint32_t ordinal);

/// The first GPU that weft's own kernels run on, without opening it; empty when there is none or no driver.
[[nodiscard]] std::optional<std::uint32_t> first_usable_gpu();

}  // namespace weft::cuda
