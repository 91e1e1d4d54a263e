#pragma once

#include <weft/export.h>
#include <weft/kernel.h>

#include <filesystem>

namespace weft::triton {

/// The spec of a kernel in Triton's cache: `metadata` is its JSON file, and the cubin stands beside it under the same
/// name.
///
///     session.load(weft::triton::kernel("axpy.json", {.parameters = weft::parameters<In<float>, ...>({"x", ...})}))
///
/// The spec has the parameters that the Python function takes on the device, in its order and without its constexpr
/// ones: no file of the cache has them. A label, a launch rule, a host reference and `programmatic` are the caller's
/// too. All else is read here: code, symbol, block, cluster, whether the launch is cooperative, dynamic shared memory
/// (also of launches by rule, which give the grid alone), and the scratch pointers that Triton adds behind the
/// parameters and weft fills with null. The files are read whole and are not needed afterwards.
///
/// A grid counts blocks: Triton's programs, times `num_ctas` in x. `launch_pdl` promises nothing: a kernel that waits
/// for its dependencies says `programmatic`.
///
/// Pure but for the two files. Errors, naming the file: `io` where one cannot be read, is no JSON, lacks a field or has
/// another type or a value that is none; `unsupported` for another backend than CUDA, global or profile scratch and
/// tensor descriptors; `invalid` for a spec that says what the files say. Code for another GPU is refused with
/// `unsupported` when it is loaded.
[[nodiscard]] WEFT_API KernelSpec kernel(const std::filesystem::path& metadata, KernelSpec spec);

}  // namespace weft::triton
