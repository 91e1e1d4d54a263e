#pragma once

#include "device/device_api.h"
#include "device/handles.h"
#include <weft/kernel.h>

#include <memory>

namespace weft {

/// Code on a device, kept loaded while a kernel of it lives.
using LoadedModule = std::shared_ptr<const UniqueModule>;

/// A kernel whose compiled layout agrees with its spec. Immutable; shared by all that use it.
struct LoadedKernel {
  KernelSpec spec;
  LoadedModule module;
  KernelHandle handle = KernelHandle::none;
  CompiledKernel compiled;
};

[[nodiscard]] LoadedModule load_module(const std::shared_ptr<DeviceApi>& api, const CodeImage& image);

/// Finds the spec's kernel and holds the compiled layout against it. Errors: `invalid` where they contradict.
[[nodiscard]] std::shared_ptr<const LoadedKernel> load_kernel(DeviceApi& api, LoadedModule module,
                                                              const KernelSpec& spec);

}  // namespace weft
