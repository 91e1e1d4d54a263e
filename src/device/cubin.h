#pragma once

#include "device/device_api.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace weft {

/// A kernel's parameter as a cubin describes it.
struct CubinParameter {
  std::uint32_t offset = 0;
  std::uint32_t size = 0;
  /// The state space of PTX's `.ptr` on the parameter, in ptxas's numbering; 0 where the parameter has none.
  std::uint32_t space = 0;
  friend bool operator==(const CubinParameter&, const CubinParameter&) = default;
};

/// Parameters by kernel symbol, in order.
using CubinKernels = std::map<std::string, std::vector<CubinParameter>, std::less<>>;

/// Reads what a cubin, an ELF file, tells of its kernels' parameters.
///
/// Pure, for bytes of any origin: what is malformed or of a form that is not known is left out, and an image that is no
/// cubin has no kernels. O(bytes).
///
/// The form is not documented by NVIDIA. Section `.nv.info.<symbol>` is a list of records: a byte of format, a byte of
/// attribute, two bytes of value; in format 4 the value is the length of a payload that follows. A payload of
/// attribute 0x17 (EIATTR_KPARAM_INFO) is
///     u32 index, u16 ordinal, u16 offset, u32 packed: bits 0-7 log2 of the pointee's alignment, 8-11 space, 18-31 size
/// and of attribute 0x45 (EIATTR_KPARAM_INFO_V2, when a size needs more bits)
///     u32 index, u16 ordinal, u16 offset, u16 size, u8 log2 of the pointee's alignment, u8 space
/// Read from what ptxas 13.0 makes of PTX with each state space, and from Triton 3.6's cubins. The same fields stand in
/// cuobjdump's output ("Ordinal, Offset, Size, Pointee's logAlignment, Space, cbank") and in the readers of
/// https://github.com/VivekPanyam/cudaparsers (src/cubin.rs).
[[nodiscard]] CubinKernels read_cubin(std::span<const std::byte> image);

/// Tells pointers from values in `compiled`, where the cubin's layout is the compiled one and the cubin can tell.
///
/// A parameter with a state space is a pointer. One without is a value, if another parameter of the kernel has one or
/// its size is not a pointer's: a compiler that marks pointers (Triton, LLVM) marks all of them, and nvcc marks none.
void tell_kinds(CompiledKernel& compiled, std::span<const CubinParameter> parameters);

}  // namespace weft
