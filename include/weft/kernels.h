#pragma once

#include <weft/export.h>
#include <weft/kernel.h>
#include <weft/typed_kernel.h>

#include <cstdint>

// The kernels that weft ships: f32, row-major, any size from 1, any alignment from 4 bytes. Each runs as code for sm_80
// and sm_90, as PTX on newer devices, and as its host reference on the host device.
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

}  // namespace weft::kernels
