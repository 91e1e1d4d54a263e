#pragma once

#include <cstddef>
#include <span>

namespace weft {

// Defined by weft_add_fatbin; empty in a build without CUDA.
[[nodiscard]] std::span<const std::byte> linear_image() noexcept;
[[nodiscard]] std::span<const std::byte> elementwise_image() noexcept;

}  // namespace weft
