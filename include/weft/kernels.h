#pragma once

#include <weft/export.h>
#include <weft/kernel.h>
#include <weft/tensor.h>
#include <weft/typed_kernel.h>

#include <concepts>
#include <cstdint>

// The kernels that weft ships: row-major, any size from 1, any alignment from that of an element. Each runs as code for
// sm_80 and sm_90, as PTX on newer devices, and as its host reference on the host device. Each waits for what it
// depends on before it touches bound memory, so that its edges may be programmatic.
//
// Those for layers of any kind take f32. Those of a transformer encoder take f32, f16 and bf16, reckon in f32 and round
// once, to the nearest, when they store: a result beyond the range of its type is an infinity. They read 16 bytes at
// once where all operands are aligned to 16 and their rows are multiples of it. Floors are in bytes, with `size` for
// those of an element. `linear_skinny` multiplies on tensor cores alone: it takes f16 and bf16.
//
// The launch rules are pure and refuse, with `invalid`, a workload with another number of words, a word of 0, and one
// that its parameter cannot carry. The kernels stride by their grid: any grid computes the whole problem, the rule's
// computes it fast. Nothing outside the given sizes is read or written.

namespace weft::kernels {

[[nodiscard]] WEFT_API KernelSpec linear_spec();
[[nodiscard]] WEFT_API KernelSpec linear_relu_spec();
[[nodiscard]] WEFT_API KernelSpec linear_unbiased_spec();
[[nodiscard]] WEFT_API KernelSpec linear_split_spec();
[[nodiscard]] WEFT_API KernelSpec add_spec();
[[nodiscard]] WEFT_API KernelSpec scale_spec();

/// `linear(workload(rows, out), x, w, b, y, rows, in, out)`: y = x w^T + b, with x [rows, in], w [out, in], b [out] and
/// y [rows, out].
///
/// Floor: 4 (rows in + out in + out + rows out) bytes and 2 rows in out operations. A block computes 8 x 16 elements of
/// y and takes 128 columns of x and w at a time, both 16 bytes at once where x and w are aligned to 16 and `in` is a
/// multiple of 4. Small layers take one pass and the time of one block; large ones read x ceil(out / 16) times and w
/// ceil(rows / 8) times, mostly from the L2 cache.
inline constexpr TypedKernelSpec<In<float>, In<float>, In<float>, Out<float>, std::uint32_t, std::uint32_t,
                                 std::uint32_t>
    linear{linear_spec};

/// As `linear`, with every element below 0 replaced by 0. A NaN stays a NaN.
inline constexpr TypedKernelSpec<In<float>, In<float>, In<float>, Out<float>, std::uint32_t, std::uint32_t,
                                 std::uint32_t>
    linear_relu{linear_relu_spec};

/// `linear_unbiased(workload(rows, out), x, w, y, rows, in, out)`: y = x w^T.
inline constexpr TypedKernelSpec<In<float>, In<float>, Out<float>, std::uint32_t, std::uint32_t, std::uint32_t>
    linear_unbiased{linear_unbiased_spec};

/// `linear_split(workload(rows, out, splits), x, w, b, sum, rows, in, out, splits)`: sum += x w^T + b, the columns of x
/// and w divided among `splits` blocks that add their parts atomically. For layers with too few elements of y to fill
/// the device.
///
/// A command before it fills `sum` with 0. Split 0 adds b; splits beyond the columns add nothing. The parts come in no
/// fixed order, so with more than two splits the last bits of `sum` vary from run to run.
/// Floor: as `linear`, and 4 rows out splits more bytes for the additions, which the L2 cache does.
inline constexpr TypedKernelSpec<In<float>, In<float>, In<float>, InOut<float>, std::uint32_t, std::uint32_t,
                                 std::uint32_t, std::uint32_t>
    linear_split{linear_split_spec};

/// `add(workload(count), a, b, y, count)`: y[i] = a[i] + b[i]. Floor: 12 count bytes.
inline constexpr TypedKernelSpec<In<float>, In<float>, Out<float>, std::uint64_t> add{add_spec};

/// `scale(workload(count), x, y, factor, count)`: y[i] = x[i] factor. Floor: 8 count bytes.
inline constexpr TypedKernelSpec<In<float>, Out<float>, float, std::uint64_t> scale{scale_spec};

/// An element type of the kernels below.
template <class T>
concept FloatElement = std::same_as<T, float> || std::same_as<T, f16> || std::same_as<T, bf16>;

/// One of those that tensor cores multiply exactly, adding in f32.
template <class T>
concept HalfElement = std::same_as<T, f16> || std::same_as<T, bf16>;

/// A size up to which there is a kernel for attention.
template <std::uint32_t Size>
concept AttentionHeadSize = Size == 32 || Size == 64 || Size == 128;

// For a dtype that is known when the program runs. Errors: `invalid` for another dtype than f32, f16 and bf16.
[[nodiscard]] WEFT_API KernelSpec embedding_spec(DType dtype);
[[nodiscard]] WEFT_API KernelSpec layer_norm_spec(DType dtype);
[[nodiscard]] WEFT_API KernelSpec layer_norm_residual_spec(DType dtype);
[[nodiscard]] WEFT_API KernelSpec gelu_spec(DType dtype);
[[nodiscard]] WEFT_API KernelSpec mean_pool_spec(DType dtype);
// Errors: also `invalid` for f32.
[[nodiscard]] WEFT_API KernelSpec linear_skinny_spec(DType dtype);
[[nodiscard]] WEFT_API KernelSpec linear_skinny_gelu_spec(DType dtype);
/// The kernel for heads of `head_size`: one of those for at most 32, 64 and 128. Errors: also `invalid` for a size of 0
/// or beyond 128.
[[nodiscard]] WEFT_API KernelSpec attention_spec(DType dtype, std::uint32_t head_size);

/// `embedding(workload(batch, sequence), ids, types, words, positions, kinds, y, batch, sequence, hidden, word_count,
/// position_count, kind_count)`: y[b, s] = words[ids[b, s]] + positions[s] + kinds[types[b, s]], with ids and types
/// [batch, sequence], words [word_count, hidden], positions [position_count, hidden], kinds [kind_count, hidden] and y
/// [batch, sequence, hidden].
///
/// An id, a position or a type that its table does not have reads nothing and makes its row of y NaN.
///
/// Floor: batch sequence (8 + 2 hidden size) bytes, and the tables' rows that are used, once.
template <FloatElement T>
inline constexpr TypedKernelSpec<In<std::int32_t>, In<std::int32_t>, In<T>, In<T>, In<T>, Out<T>, std::uint32_t,
                                 std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t, std::uint32_t>
    embedding{[] { return embedding_spec(DTypeOf<T>::value); }};

/// `layer_norm(workload(rows), x, gamma, beta, y, rows, columns, eps)`: each row of x less its mean, divided by the
/// root of its variance + eps, times gamma, plus beta; with x and y [rows, columns], gamma and beta [columns].
///
/// The variance divides by columns. A row of equal elements becomes beta, with an eps above 0. A NaN or an infinity
/// makes its row NaN, and no other.
///
/// Floor: size (2 rows + 2) columns bytes. A warp takes a row; rows of up to 1024 columns are read once.
template <FloatElement T>
inline constexpr TypedKernelSpec<In<T>, In<T>, In<T>, Out<T>, std::uint32_t, std::uint32_t, float> layer_norm{
    [] { return layer_norm_spec(DTypeOf<T>::value); }};

/// `layer_norm_residual(workload(rows), x, bias, residual, gamma, beta, y, rows, columns, eps)`: as `layer_norm` of
/// x + bias + residual, with bias [columns] and residual [rows, columns]: what stands behind a matmul x that has left
/// its bias and the residual connection to this kernel. The sum is not rounded before the norm.
///
/// Floor: size (3 rows + 3) columns bytes.
template <FloatElement T>
inline constexpr TypedKernelSpec<In<T>, In<T>, In<T>, In<T>, In<T>, Out<T>, std::uint32_t, std::uint32_t, float>
    layer_norm_residual{[] { return layer_norm_residual_spec(DTypeOf<T>::value); }};

/// `gelu(workload(rows, columns), x, bias, y, rows, columns)`: y = v (1 + erf(v / sqrt 2)) / 2 of v = x + bias, with x
/// and y [rows, columns] and bias [columns]: what stands behind a matmul that has left its bias to this kernel.
///
/// A NaN stays one; minus infinity becomes one.
///
/// Floor: size (2 rows + 1) columns bytes.
template <FloatElement T>
inline constexpr TypedKernelSpec<In<T>, In<T>, Out<T>, std::uint32_t, std::uint32_t> gelu{
    [] { return gelu_spec(DTypeOf<T>::value); }};

/// `attention(workload(batch, sequence, heads, head_size), qkv, bias, lengths, y, batch, sequence, heads, head_size,
/// scale)`: in each head, y = softmax(scale q k^T) v over the first lengths[b] tokens of sequence b, with qkv
/// [batch, sequence, 3, heads, head_size] as a matmul by the weights of q, k and v gives it, its bias [3, heads,
/// head_size], lengths [batch], and y [batch, sequence, heads, head_size]. BERT's scale is 1 / sqrt(head_size).
///
/// For heads of at most `MaxHeadSize`: 32, 64 or 128. A launch given as a grid with a larger one writes nothing.
///
/// Tokens from the length on have no influence, and their rows of y are 0. A length below 0 counts as 0, one beyond the
/// sequence as the sequence. The bias of k is not read: it cancels in the softmax. A NaN in a query makes its row of
/// the head NaN, in a key all rows of the sequence's head, and in a value a column of them.
///
/// f32 multiplies in f32. f16 and bf16 multiply on tensor cores, where q + bias and the softmax's numerators, which lie
/// between 0 and 1, are rounded to T.
///
/// Floor: 4 size batch sequence heads head_size bytes and 4 batch sequence^2 heads head_size operations. No scores
/// leave the multiprocessor. A block takes 64 queries of a head, 16 in f32, and reads all of its keys and values,
/// mostly from the L2 cache.
template <FloatElement T, std::uint32_t MaxHeadSize>
requires AttentionHeadSize<MaxHeadSize>
inline constexpr TypedKernelSpec<In<T>, In<T>, In<std::int32_t>, Out<T>, std::uint32_t, std::uint32_t, std::uint32_t,
                                 std::uint32_t, float>
    attention{[] { return attention_spec(DTypeOf<T>::value, MaxHeadSize); }};

/// `mean_pool(workload(batch), x, lengths, y, batch, sequence, columns)`: y[b] = m / max(|m|, 1e-12), m the mean of the
/// first lengths[b] rows of x[b] and |m| its Euclidean norm, with x [batch, sequence, columns], lengths [batch], and y
/// [batch, columns] in f32 for every T.
///
/// Rows from the length on have no influence. A length below 0 counts as 0, one beyond the sequence as the sequence;
/// the row of a length of 0 is 0.
///
/// Floor: (size sum(lengths) + 4 batch) columns bytes. A block takes a sequence.
template <FloatElement T>
inline constexpr TypedKernelSpec<In<T>, In<std::int32_t>, Out<float>, std::uint32_t, std::uint32_t, std::uint32_t>
    mean_pool{[] { return mean_pool_spec(DTypeOf<T>::value); }};

/// `linear_skinny(workload(rows, out), x, w, y, rows, in, out)`: y = x w^T, with x [rows, in], w [out, in] and y
/// [rows, out]: the matmul of a small batch, whose bias is left to the kernel behind it.
///
/// For few rows, up to a few hundreds: it is made for latency, and rereads x and w from the L2 cache where a library's
/// matmul for many rows keeps larger tiles. The order of the additions depends on the sizes alone, so equal operands
/// give equal bits.
///
/// Floor: size (rows in + out in + rows out) bytes; for 16 rows the weights are nearly all of it. A block computes
/// 16 x 8, 32 x 16 or 64 x 32 elements of y, its warps dividing the columns of x and w.
template <HalfElement T>
inline constexpr TypedKernelSpec<In<T>, In<T>, Out<T>, std::uint32_t, std::uint32_t, std::uint32_t> linear_skinny{
    [] { return linear_skinny_spec(DTypeOf<T>::value); }};

/// `linear_skinny_gelu(workload(rows, out), x, w, b, y, rows, in, out)`: `gelu` of `linear_skinny` with its bias b
/// [out], without a rounding between them.
///
/// Floor: as `linear_skinny`, and size out bytes.
template <HalfElement T>
inline constexpr TypedKernelSpec<In<T>, In<T>, In<T>, Out<T>, std::uint32_t, std::uint32_t, std::uint32_t>
    linear_skinny_gelu{[] { return linear_skinny_gelu_spec(DTypeOf<T>::value); }};

}  // namespace weft::kernels
