#pragma once

#include "device/device_api.h"
#include "device/handles.h"
#include <weft/kernel.h>

#include <cstddef>
#include <cstdint>
#include <memory>
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

/// A parameter block of these values, pointers or integers, each in its parameter's width.
[[nodiscard]] std::vector<std::byte> parameter_block(const CompiledKernel& compiled,
                                                     std::span<const std::uint64_t> values);

[[nodiscard]] LoadedModule load_module(const std::shared_ptr<DeviceApi>& api, const CodeImage& image);

/// Finds the spec's kernel and holds the compiled layout against it. Errors: `invalid` where they contradict.
[[nodiscard]] std::shared_ptr<const LoadedKernel> load_kernel(DeviceApi& api, LoadedModule module,
                                                              const KernelSpec& spec);

}  // namespace weft
