#pragma once

#include "device/device_api.h"
#include <weft/kernel.h>

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

/// A kernel that was found on a host device.
struct LoadedHostKernel {
  ModuleHandle module = ModuleHandle::none;
  std::string symbol;
  std::vector<Parameter> parameters;
  std::function<void(const HostLaunch&)> run;  ///< Empty without a host reference.
  CompiledKernel compiled;
  std::uint32_t raised_dynamic_shared_bytes = 0;
  bool unloaded = false;
};

/// The layout that stands for the compiled one: the host reference's sizes, or the spec's where there is none, each at
/// its natural alignment.
///
/// The alignment of a parameter is the largest power of two that divides its size, at most 8. It is exact for pointers
/// and scalars. A struct's true alignment may be smaller (two floats) or larger (alignas); its size alone does not
/// tell.
[[nodiscard]] CompiledKernel host_layout(const KernelSpec& spec);

/// What a driver refuses when a kernel node is added.
[[nodiscard]] DeviceStatus check_launch(const KernelNode& node, const LoadedHostKernel& kernel,
                                        const DeviceLimits& limits) noexcept;

/// How many blocks of the launch the device holds at once, in whole clusters. By the figures of sm_90 for threads,
/// blocks and shared memory of a multiprocessor; registers are not counted, and clusters spread over the device freely.
[[nodiscard]] std::uint64_t max_resident_blocks(const KernelNode& launch, const LoadedHostKernel& kernel,
                                                const DeviceLimits& limits) noexcept;

/// Addresses in the kernel's binding parameters, in order.
[[nodiscard]] std::vector<DeviceAddress> bound_addresses(const KernelNode& node, const LoadedHostKernel& kernel);

/// Computes the whole launch. Whatever the host reference throws leaves it.
void run_kernel(const KernelNode& node, const LoadedHostKernel& kernel);

}  // namespace weft
