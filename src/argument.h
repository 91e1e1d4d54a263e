#pragma once

#include "loaded_kernel.h"
#include "operation.h"
#include <weft/command.h>
#include <weft/plan/hazard.h>

#include <span>
#include <vector>

namespace weft {

/// Arguments placed in a kernel's parameter block.
struct BoundArguments {
  std::vector<std::byte> parameters;
  std::vector<PointerSlot> pointers;
  std::vector<ByteUse> uses;
};

/// Refuses a call with another number or other kinds of arguments than the kernel has parameters. Errors: `invalid`.
void require_signature(const KernelSpec& spec, std::span<const Argument> arguments);

/// Holds a call's arguments against the kernel's parameters: their access, widths and alignment, in that order. Regions
/// and signature must have been checked. Errors: `invalid`, naming the argument.
[[nodiscard]] BoundArguments bind_arguments(const LoadedKernel& kernel, std::span<const Argument> arguments);

/// A region that a call binds, and whether the kernel writes it.
struct BoundRegion {
  Region region;
  bool written = false;
};

/// All regions that the arguments bind, in order, whether or not the call fits the kernel.
[[nodiscard]] std::vector<BoundRegion> bound_regions(const KernelSpec& spec, std::span<const Argument> arguments);

}  // namespace weft
