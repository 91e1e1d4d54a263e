#pragma once

#include "slot.h"

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace weft {

/// Gives slots their executables. Those whose plans have the shape of the first slot's are stamped from one template a
/// thread, on several threads where there is enough to do; the others are built alone, and their indices returned. On
/// an error the slots are half made and only good for destruction.
[[nodiscard]] std::vector<std::uint32_t> make_executables(const std::shared_ptr<DeviceApi>& api,
                                                          std::span<const std::unique_ptr<Slot>> slots);

}  // namespace weft
