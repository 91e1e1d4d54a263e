#pragma once

#include <weft/export.h>

#include <cstdint>
#include <string>

namespace weft {

/// Names a device; opens nothing.
struct Device {
  enum class Kind : std::uint8_t {
    cuda,  ///< An NVIDIA GPU, by its CUDA ordinal.
    host,  ///< The host device: runs the kernels' host references on the CPU. For tests and development.
  };

  Kind kind = Kind::cuda;
  std::uint32_t ordinal = 0;

  [[nodiscard]] static constexpr Device cuda(std::uint32_t ordinal = 0) noexcept { return {Kind::cuda, ordinal}; }
  [[nodiscard]] static constexpr Device host(std::uint32_t ordinal = 0) noexcept { return {Kind::host, ordinal}; }
  /// The first GPU where there is a usable one, else the host device. Asked for by name only: weft never falls back
  /// silently. Cost: initialises the CUDA driver when called first.
  [[nodiscard]] WEFT_API static Device automatic();

  friend bool operator==(const Device&, const Device&) = default;
};

/// "cuda:0" or "host:0".
[[nodiscard]] WEFT_API std::string to_string(Device device);

}  // namespace weft
