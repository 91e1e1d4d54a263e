#pragma once

#include <weft/typed_kernel.h>

#include <cstdint>
#include <span>

// Kernels for tests, on the GPU and as host references. None is fast.

namespace weft::test {

/// increment(x, amount): x[0] += amount.
[[nodiscard]] KernelSpec increment_spec();

/// xor_bytes(x, y, count, mask): y[i] = x[i] ^ mask. Workload: count.
[[nodiscard]] KernelSpec xor_bytes_spec();

/// slow_copy(x, y, count, nanoseconds): waits, then y[i] = x[i]. Workload: count.
[[nodiscard]] KernelSpec slow_copy_spec();

/// digest(x, d, count, salt): folds salt and the bytes of x into d[0].
[[nodiscard]] KernelSpec digest_spec();

/// shared_words(y, words): y[0] = words + 11, or 10 for no words, by way of that many words of dynamic shared memory
/// and 16 bytes of static. Workload: bytes of dynamic shared memory.
[[nodiscard]] KernelSpec shared_words_spec();

/// unpack(packed, extents, y, bytes, records, width): record i of y is the bytes [extents[2i], extents[2i] + extents[2i
/// + 1]) of `packed`, filled up with zeros; all zeros where they pass `bytes` or are more than `width`. Workload:
/// records.
[[nodiscard]] KernelSpec unpack_spec();

/// append(x, cache, length, d, bytes): the word x, of `bytes`, becomes number length[0] of `cache`, length[0] grows by
/// one, and d[0] is the digest of all words so far.
[[nodiscard]] KernelSpec append_spec();

/// spin_until_zero(counter, y): waits until counter[0] is 0, or has been read a million times, then y[0] =
/// ++counter[0].
[[nodiscard]] KernelSpec spin_until_zero_spec();

/// count_up(counter, adds): counter[0] += 1, `adds` times and by as many threads. Workload: adds.
[[nodiscard]] KernelSpec count_up_spec();

/// What the kernel `digest` makes of a word.
[[nodiscard]] std::int64_t digest_of(std::span<const std::uint8_t> x, std::int64_t before, std::uint64_t salt);

inline constexpr TypedKernelSpec<InOut<std::uint32_t>, std::uint32_t> increment{increment_spec};
inline constexpr TypedKernelSpec<In<std::uint8_t>, Out<std::uint8_t>, std::uint64_t, std::uint8_t> xor_bytes{
    xor_bytes_spec};
inline constexpr TypedKernelSpec<In<std::uint32_t>, Out<std::uint32_t>, std::uint64_t, std::uint64_t> slow_copy{
    slow_copy_spec};
inline constexpr TypedKernelSpec<In<std::uint8_t>, InOut<std::int64_t>, std::uint64_t, std::uint64_t> digest{
    digest_spec};
inline constexpr TypedKernelSpec<Out<std::uint32_t>, std::uint32_t> shared_words{shared_words_spec};

inline constexpr TypedKernelSpec<In<std::uint8_t>, In<std::uint32_t>, Out<std::uint8_t>, std::uint32_t, std::uint32_t,
                                 std::uint32_t>
    unpack{unpack_spec};

inline constexpr TypedKernelSpec<InOut<std::uint32_t>, std::uint64_t> count_up{count_up_spec};

inline constexpr TypedKernelSpec<In<std::uint8_t>, InOut<std::uint8_t>, InOut<std::uint32_t>, Out<std::int64_t>,
                                 std::uint32_t>
    append{append_spec};

inline constexpr TypedKernelSpec<InOut<std::uint32_t>, Out<std::uint32_t>> spin_until_zero{spin_until_zero_spec};

}  // namespace weft::test
