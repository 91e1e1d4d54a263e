#pragma once

#include <cstdint>

// What the code of elementwise.cu and its specs in elementwise.cpp must agree on.

namespace weft::kernels::elementwise_block {

inline constexpr std::uint32_t kThreads = 256;
inline constexpr std::uint32_t kVector = 4;                     ///< Floats that a thread takes at once.
inline constexpr std::uint32_t kElements = kThreads * kVector;  ///< Of a block, before it strides.

}  // namespace weft::kernels::elementwise_block
