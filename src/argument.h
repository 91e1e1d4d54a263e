#pragma once

#include "loaded_kernel.h"
#include "operation.h"
#include <weft/command.h>
#include <weft/plan/hazard.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace weft {

/// Arguments placed in a kernel's parameter block.
struct BoundArguments {
  std::vector<std::byte> parameters;
  std::vector<PointerSlot> pointers;
  std::vector<ByteUse> uses;
  std::vector<LateScalarSlot> late;
};

/// By the index in a LateScalarId.
using LateScalars = std::span<const std::shared_ptr<const LateScalarDeclaration>>;

/// Refuses a call with another number or other kinds of arguments than the kernel has parameters. Errors: `invalid`.
void require_signature(const KernelSpec& spec, std::span<const Argument> arguments);

/// Holds a call's arguments against the kernel's parameters: their access, widths and alignment, in that order.
/// Regions, late scalars and signature must have been checked. Errors: `invalid`, naming the argument.
[[nodiscard]] BoundArguments bind_arguments(const LoadedKernel& kernel, std::span<const Argument> arguments,
                                            LateScalars late);

/// A region that a call binds, whether the kernel writes it, and where it stands in the call.
struct BoundRegion {
  Region region;
  bool written = false;
  std::size_t argument = 0;
  std::optional<std::uint64_t> pointer_offset = {};  // Set where the pointer stands inside a struct.
};

/// All regions that the arguments bind, in order, whether or not the call fits the kernel.
[[nodiscard]] std::vector<BoundRegion> bound_regions(const KernelSpec& spec, std::span<const Argument> arguments);

/// `argument 1 ("y")`, or `the pointer at byte 8 of argument 0 ("x")`.
[[nodiscard]] std::string describe(const KernelSpec& spec, const BoundRegion& bound);

}  // namespace weft
