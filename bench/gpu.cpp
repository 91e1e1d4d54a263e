#include "gpu.h"

#include "support/cuda_version.h"

#include <cuda_runtime_api.h>

#include <string>

namespace weft::bench {

Facts describe_gpu(const Context& context) {
  const DeviceProperties properties = context.properties();
  int khz = 0;
  const cudaError_t error =
      cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, static_cast<int>(context.device().ordinal));
  return {
      {"gpu", properties.name},
      {"gpu_clock_limit", error == cudaSuccess ? std::to_string(khz / 1000) + " MHz" : "unknown"},
      {"driver", tools::cuda_version_text(properties.driver_version)},
      {"runtime", tools::cuda_version_text(CUDART_VERSION)},
  };
}

}  // namespace weft::bench
