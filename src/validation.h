#pragma once

#include "device/device_api.h"
#include "late_declaration.h"
#include "loaded_kernel.h"
#include "operation.h"
#include <weft/command.h>
#include <weft/kernel.h>
#include <weft/region.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

// Checks of commands, the same for a definition, a session and a graph. The first violation is thrown as `invalid`;
// nothing is allocated and nothing runs.

namespace weft {

/// Whose handles are accepted, and how messages call it.
struct HandleOwner {
  std::uint64_t id = 0;       ///< That every region or kernel must carry.
  std::string_view noun;      ///< "definition", "session", "graph".
  std::string_view identity;  ///< Before the id: "this definition comes from session".
};

/// What commands are held against. Borrows everything.
struct ValidationScope {
  HandleOwner regions_of;
  std::span<const Allocation> allocations;  ///< By the index in a region.
  HandleOwner kernels_of;
  std::span<const std::shared_ptr<const LoadedKernel>> kernels;  ///< By the index in a KernelId.
  const DeviceLimits& limits;
  bool weights_are_writable = false;  ///< Until the session is frozen.
  std::span<const std::shared_ptr<const LateScalarDeclaration>> late_scalars =
      {};  ///< Of the kernels' owner, by index.
};

/// The allocation of a region that lies inside it.
const Allocation& require_region(const ValidationScope& scope, const Region& region);

[[nodiscard]] const std::shared_ptr<const LoadedKernel>& find_kernel(const ValidationScope& scope, KernelId id);

/// Refuses a late scalar that is not the scope's.
void require_late_scalar(const ValidationScope& scope, LateScalarId id);

/// Refuses memory that requests bring; `why` ends the sentence.
void require_not_late(const Allocation& allocation, std::string_view why);

/// What the kernel's launch rule makes of the workload; its own errors pass through.
[[nodiscard]] LaunchConfig evaluate_launch(const KernelSpec& spec, std::span<const std::uint64_t> workload);

[[nodiscard]] Operation validate_fill(const ValidationScope& scope, const Fill& fill);
[[nodiscard]] Operation validate_dispatch(const ValidationScope& scope, const Dispatch& dispatch);
/// Its workspace is yet to be given: see add_workspaces.
[[nodiscard]] Operation validate_captured(const ValidationScope& scope, const Captured& captured);

/// Any of them at `position` of a list, with the label and the stated order.
[[nodiscard]] Operation validate_command(const ValidationScope& scope, const Command& command, std::size_t position);

/// A whole list, in order.
[[nodiscard]] std::vector<Operation> validate_commands(const ValidationScope& scope, std::span<const Command> commands);

}  // namespace weft
