#pragma once

#include <weft/kernel.h>

// Kernels that are compiled into the test program, and not into an image.

namespace weft::test {

/// add_constant(x, y, count, constant): y[i] = x[i] + constant, for 32-bit words.
[[nodiscard]] KernelSpec add_constant_spec();
/// The same for 64-bit words: another instance of the same template, under the same label.
[[nodiscard]] KernelSpec add_constant_64_spec();
/// add_pair(y, pair): y[0] = pair.a + pair.b, the pair passed by value.
[[nodiscard]] KernelSpec add_pair_spec();
/// A function of the host, which no CUDA runtime knows.
[[nodiscard]] KernelSpec no_kernel_spec();

}  // namespace weft::test
