#pragma once

#include "device/copy_entry.h"
#include "device/device_api.h"
#include <weft/kernel.h>

#include <string_view>

// weft's own kernels: what a graph needs beside the model's commands. Their code stands in device/cuda/own_kernels.cu,
// their host references beside these specs.

namespace weft::own {

/// `weft_fill(dst, bytes, value)`: stands in for a memset node where the driver refuses one on pool memory.
[[nodiscard]] KernelSpec fill_spec();

/// `weft_copy(dst, src, bytes)`: copies between device memory and pinned host memory, any alignment.
[[nodiscard]] KernelSpec copy_spec();

/// `weft_complete(counter, word)`: one thread computes n = ++*counter (device memory) and stores n to *word (pinned)
/// with system-scope release.
[[nodiscard]] KernelSpec complete_spec();

/// `weft_copy_complete(dst, src, bytes, counter, arrivals, word)`: weft_copy, whose last block to finish also
/// completes. Only where every other node is an ancestor. `arrivals` is a 32-bit word of device memory, zero before and
/// after a run.
[[nodiscard]] KernelSpec copy_complete_spec();

/// `weft_copy_table(entries, count)`: copies several ranges in one kernel. `entries` is an array of `count` (32-bit)
/// CopyEntry in pinned host memory, written before the launch and left alone until it is done; the ranges may have any
/// alignment and must not overlap what another entry writes.
[[nodiscard]] KernelSpec copy_table_spec();

/// `weft_copy_table_complete(entries, count, counter, arrivals, word)`: weft_copy_table, whose last block to finish
/// also completes, as that of weft_copy_complete does.
[[nodiscard]] KernelSpec copy_table_complete_spec();

/// Whether a kernel symbol is one of weft's own.
[[nodiscard]] bool is_own_symbol(std::string_view symbol) noexcept;

/// Grid of weft_fill, weft_copy and weft_copy_complete for this many bytes.
[[nodiscard]] Dim3 copy_grid(std::uint64_t bytes) noexcept;

/// Grid of weft_copy_table and weft_copy_table_complete for `count` entries of up to `largest_bytes`. Fits the kernels
/// also where the entries of a launch turn out to be smaller, or skipped.
[[nodiscard]] Dim3 copy_table_grid(std::uint64_t largest_bytes, std::uint32_t count) noexcept;

}  // namespace weft::own
