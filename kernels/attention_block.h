#pragma once

#include <cstdint>

// What the code of attention.cu and its specs in attention.cpp must agree on. There is a kernel for heads of at most
// 32, of 64 and of 128 elements, with registers and shared memory for that many.

namespace weft::kernels::attention_block {

inline constexpr std::uint32_t kThreads = 128;
inline constexpr std::uint32_t kWarps = kThreads / 32;

// f32, on the ordinary cores: a warp takes a few queries, each of its lanes one key of a tile.
inline constexpr std::uint32_t kPlainWarpQueries = 4;
inline constexpr std::uint32_t kPlainQueries = kWarps * kPlainWarpQueries;  ///< Of a block.
inline constexpr std::uint32_t kPlainKeys = 32;                             ///< Of a tile.
/// Distance of keys in shared memory, in floats: four banks more than a round of all, so that the eight lanes that a
/// 16-byte read serves at once meet every bank once.
template <std::uint32_t HeadSize>
inline constexpr std::uint32_t kPlainKeyStride = HeadSize + 4;
template <std::uint32_t HeadSize>
inline constexpr std::uint32_t kPlainSharedBytes = (kPlainQueries * HeadSize +
                                                    kPlainKeys * (kPlainKeyStride<HeadSize> + HeadSize)) *
                                                   4;

// f16 and bf16, on the tensor cores: a warp takes the 16 rows of a matrix instruction.
inline constexpr std::uint32_t kTensorWarpQueries = 16;
inline constexpr std::uint32_t kTensorQueries = kWarps * kTensorWarpQueries;  ///< Of a block.
/// Keys of a tile: as many as fit with the widest heads into 48 KiB.
template <std::uint32_t HeadSize>
inline constexpr std::uint32_t kTensorKeys = HeadSize < 128 ? 128 : 64;
/// Distance of keys in shared memory, in elements: eight rows of 16 bytes meet every bank once.
template <std::uint32_t HeadSize>
inline constexpr std::uint32_t kTensorKeyStride = HeadSize + 8;
template <std::uint32_t HeadSize>
inline constexpr std::uint32_t kTensorSharedBytes = 2 * kTensorKeys<HeadSize>* kTensorKeyStride<HeadSize> * 2;

}  // namespace weft::kernels::attention_block
