#pragma once

#include <cstdint>

namespace weft::test {

// Device data generated and verified on the device, for ranges too large to bring to the host. Each call waits.

/// Byte i becomes a function of `seed` and i below 0x80.
void write_pattern(std::uint64_t address, std::uint64_t bytes, std::uint64_t seed);

/// How many of the bytes [first, first + bytes) differ from what write_pattern gave them.
[[nodiscard]] std::uint64_t pattern_mismatches(std::uint64_t address, std::uint64_t first, std::uint64_t bytes,
                                               std::uint64_t seed);

/// How many of the bytes differ from `value`.
[[nodiscard]] std::uint64_t value_mismatches(std::uint64_t address, std::uint64_t bytes, std::uint8_t value);

}  // namespace weft::test
