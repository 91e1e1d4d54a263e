#pragma once

#include <spdlog/fmt/fmt.h>

#include <cstdint>
#include <string>

namespace weft::tools {

/// "CUDA 13.0" of 13000, as CUDA counts its versions; "none" of 0.
[[nodiscard]] inline std::string cuda_version_text(std::uint32_t version) {
  return version == 0 ? "none" : fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10);
}

}  // namespace weft::tools
