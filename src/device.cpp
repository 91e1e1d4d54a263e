#include "device/registry.h"
#include <weft/device.h>

#include <spdlog/fmt/fmt.h>

namespace weft {

Device Device::automatic() { return first_usable_gpu().value_or(Device::host()); }

std::string to_string(Device device) {
  return fmt::format("{}:{}", device.kind == Device::Kind::cuda ? "cuda" : "host", device.ordinal);
}

}  // namespace weft
