#include "device/cuda/cuda_limits.h"

#include <spdlog/fmt/fmt.h>

#include <array>

namespace weft::cuda {
namespace {

// No attribute tells it: 32,764 bytes since sm_70 and driver 12.1.
constexpr std::uint32_t kMaxParameterBytes = 32764;

std::uint32_t attribute(const Driver& driver, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  check(to_status(driver.DeviceGetAttribute.function(&value, which, device), driver.DeviceGetAttribute.name),
        "tell its attributes");
  return static_cast<std::uint32_t>(value);
}

void require_features(const DeviceLimits& limits, const Driver& driver, CUdevice device) {
  if (attribute(driver, device, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING) == 0 ||
      attribute(driver, device, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED) == 0) {
    throw Error(ErrorCode::unsupported,
                fmt::format("The GPU {} has no memory pools over unified addresses, which weft needs.", limits.name));
  }
  if (limits.compute_capability < kOldestComputeCapability) {
    throw Error(ErrorCode::unsupported, fmt::format("The GPU {} is sm_{}, and weft's own kernels need sm_{} or newer.",
                                                    limits.name, limits.compute_capability, kOldestComputeCapability));
  }
}

}  // namespace

std::uint32_t compute_capability(const Driver& driver, CUdevice device) {
  return attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) * 10 +
         attribute(driver, device, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
}

DeviceLimits read_limits(PrimaryContext& context) {
  const Driver& driver = context.driver();
  const CUdevice device = context.device();
  const auto get = [&](CUdevice_attribute which) { return attribute(driver, device, which); };

  std::array<char, 256> name{};
  std::size_t total = 0;
  check(context.call(driver.DeviceGetName, name.data(), static_cast<int>(name.size() - 1), device), "tell its name");
  check(context.call(driver.DeviceTotalMem, &total, device), "tell its memory size");

  DeviceLimits limits;
  limits.name = name.data();
  limits.compute_capability = compute_capability(driver, device);
  limits.driver_version = driver.version;
  limits.multiprocessors = get(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  limits.max_threads_per_block = get(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  limits.max_block = {get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X), get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y),
                      get(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)};
  limits.max_grid = {get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X), get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y),
                     get(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z)};
  limits.default_shared_bytes = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
  limits.max_shared_bytes = get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  limits.max_parameter_bytes = kMaxParameterBytes;
  limits.total_memory_bytes = total;
  require_features(limits, driver, device);
  return limits;
}

}  // namespace weft::cuda
