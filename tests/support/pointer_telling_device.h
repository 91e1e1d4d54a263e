#pragma once

#include "device/device_decorator.h"

#include <cstddef>

namespace weft::test {

inline constexpr std::size_t kSalt = 3;  // Of the kernel `digest`: a scalar of eight bytes.

/// Says of the kernel `digest` that the code takes a pointer for parameter `kSalt`, as Triton's code does.
class PointerTellingDevice final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  DeviceStatus find_kernel(ModuleHandle module, const KernelSpec& spec, KernelHandle& kernel,
                           CompiledKernel& compiled) noexcept override {
    const DeviceStatus status = DeviceDecorator::find_kernel(module, spec, kernel, compiled);
    if (status.ok() && spec.symbol == "digest")
      compiled.parameters[kSalt].kind = CompiledKernel::ParameterLayout::Kind::pointer;
    return status;
  }
};

}  // namespace weft::test
