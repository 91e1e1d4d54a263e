#include "support/bytes.h"

#include <algorithm>
#include <random>

namespace weft::test {

std::vector<std::uint8_t> fresh_bytes(std::uint64_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<std::uint8_t> bytes(count);
  std::ranges::generate(bytes, [&] { return static_cast<std::uint8_t>(random()); });
  return bytes;
}

std::vector<std::uint8_t> xored(std::vector<std::uint8_t> bytes, std::uint8_t mask) {
  for (std::uint8_t& byte : bytes) byte = static_cast<std::uint8_t>(byte ^ mask);
  return bytes;
}

}  // namespace weft::test
