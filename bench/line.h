#pragma once

#include "exchange.h"
#include <weft/context.h>
#include <weft/model.h>

#include <cstddef>
#include <cstdint>

// A chain of small kernels: each scales 1024 floats (4 KiB) into the next buffer.

namespace weft::bench {

inline constexpr std::uint32_t kLineFloats = 1024;

/// Powers of two that cancel, so that answers are exact whatever the length.
[[nodiscard]] constexpr float line_factor(std::uint32_t node) noexcept { return node % 2 == 0 ? 2.0f : 0.5f; }

[[nodiscard]] ModelFragment make_line(const Context& context, std::uint32_t nodes);
[[nodiscard]] Exchange line_exchange(std::uint32_t nodes);

}  // namespace weft::bench
