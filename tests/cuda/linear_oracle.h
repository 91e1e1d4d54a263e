#pragma once

#include <cstdint>

namespace weft::test {

// Operands of linear layers too large to bring to the host, generated and verified on the device. Each call waits.

/// `count` floats become uniform numbers in [-1, 1), a function of `seed` and their position.
void write_random_floats(std::uint64_t address, std::uint64_t count, std::uint64_t seed);

struct LinearOperands {
  std::uint64_t x;
  std::uint64_t w;
  std::uint64_t b;
  std::uint64_t y;
  std::uint32_t rows;
  std::uint32_t in;
  std::uint32_t out;
};

/// The error of y against a naive x w^T + b in float64, in the norm of |x| |w|^T + |b| and units of 2^-24.
[[nodiscard]] double linear_error(const LinearOperands& operands);

}  // namespace weft::test
