#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::kernels {

/// Tokens of a sequence that count: its length, kept within 0 and the sequence. device_code.h has the same.
[[nodiscard]] constexpr std::uint32_t tokens_of(std::int32_t length, std::uint32_t sequence) noexcept {
  return length <= 0 ? 0 : std::min(static_cast<std::uint32_t>(length), sequence);
}

}  // namespace weft::kernels
