#pragma once

#include <cstddef>
#include <span>

namespace weft {

// Defined by weft_add_fatbin; empty in a build without CUDA.
[[nodiscard]] std::span<const std::byte> linear_image() noexcept;
[[nodiscard]] std::span<const std::byte> linear_skinny_image() noexcept;
[[nodiscard]] std::span<const std::byte> elementwise_image() noexcept;
[[nodiscard]] std::span<const std::byte> embedding_image() noexcept;
[[nodiscard]] std::span<const std::byte> layer_norm_image() noexcept;
[[nodiscard]] std::span<const std::byte> gelu_image() noexcept;
[[nodiscard]] std::span<const std::byte> attention_image() noexcept;
[[nodiscard]] std::span<const std::byte> mean_pool_image() noexcept;

}  // namespace weft
