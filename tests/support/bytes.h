#pragma once

#include <cstdint>
#include <vector>

namespace weft::test {

/// Bytes that differ from request to request.
[[nodiscard]] std::vector<std::uint8_t> fresh_bytes(std::uint64_t count, std::uint64_t seed);
/// Each byte ^ mask.
[[nodiscard]] std::vector<std::uint8_t> xored(std::vector<std::uint8_t> bytes, std::uint8_t mask);

}  // namespace weft::test
