#pragma once

#include "device/device_api.h"
#include "device/handles.h"
#include <weft/kernel.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace weft {

/// Code on a device, kept loaded while a kernel of it lives.
using LoadedModule = std::shared_ptr<const UniqueModule>;

/// A kernel whose compiled layout agrees with its spec. Immutable; shared by all that use it.
struct LoadedKernel {
  KernelSpec spec;
  LoadedModule module;
  KernelHandle handle = KernelHandle::none;
  CompiledKernel compiled;
  std::uint64_t id = 0;  ///< Tells it from every other kernel that the process loads, whatever its symbol.
};

/// Whether the spec has a scalar where the code takes a pointer. Its value can be null alone: weft orders what kernels
/// do with regions, and an address in a scalar would escape it.
[[nodiscard]] bool takes_null_only(const LoadedKernel& kernel, std::size_t parameter) noexcept;

/// The spec's parameter that holds the byte `block_offset` of the parameter block.
[[nodiscard]] std::optional<std::size_t> parameter_at(const LoadedKernel& kernel, std::uint32_t block_offset) noexcept;

/// A parameter block of these values, pointers or integers, each in its parameter's width.
[[nodiscard]] std::vector<std::byte> parameter_block(const CompiledKernel& compiled,
                                                     std::span<const std::uint64_t> values);

/// Holds a grid against the kernel's cluster and, for a cooperative kernel, against what the device holds at once.
/// Errors: `invalid`, naming both.
void require_launchable(const LoadedKernel& kernel, const Dim3& grid, std::uint32_t dynamic_shared_bytes);

/// Errors: `invalid` or `unsupported`, with what the driver's compiler says.
[[nodiscard]] LoadedModule load_module(const std::shared_ptr<DeviceApi>& api, const CodeImage& image);

/// Where the values of a spec go: one for each of `globals`, in order. Errors: `invalid` where the module has no such
/// variable, or one of another size.
[[nodiscard]] std::vector<DeviceAddress> find_globals(const LoadedModule& module, const KernelSpec& spec);

/// Finds the spec's kernel and holds the compiled layout against it. Errors: `invalid` where they contradict.
[[nodiscard]] std::shared_ptr<const LoadedKernel> load_kernel(DeviceApi& api, LoadedModule module,
                                                              const KernelSpec& spec);

}  // namespace weft
