#include "device/cuda/cuda_device.h"

#include "device/cuda/cuda_device_impl.h"
#include "device/cuda/cuda_limits.h"

namespace weft::cuda {

CudaDevice::CudaDevice(const Driver& driver, std::uint32_t ordinal)
    : context_(driver, ordinal), limits_(read_limits(context_)), pool_(context_), code_(context_) {
  limits_.fill_nodes_on_pool_memory = probe_fill_nodes();
  check(health(), "start");
}

bool CudaDevice::probe_fill_nodes() noexcept {
  constexpr std::uint64_t kBytes = 280;
  StreamHandle stream{};
  DeviceAddress address = 0;
  GraphHandle graph{};
  NodeHandle node{};
  ExecutableHandle executable{};

  bool accepted = false;
  if (create_stream(stream).ok() && allocate(stream, kBytes, address).ok() && create_graph(graph).ok()) {
    accepted = add_node(graph, FillNode{address, kBytes, 0}, {}, node).ok() && instantiate(graph, executable).ok();
  }
  if (executable != ExecutableHandle::none) static_cast<void>(destroy_executable(executable));
  if (graph != GraphHandle::none) static_cast<void>(destroy_graph(graph));
  if (address != 0) static_cast<void>(free(stream, address));
  if (stream != StreamHandle::none) static_cast<void>(destroy_stream(stream));
  return accepted;
}

std::shared_ptr<DeviceApi> make_cuda_device(std::uint32_t ordinal) {
  return std::make_shared<CudaDevice>(load_driver(), ordinal);
}

std::optional<std::uint32_t> first_usable_gpu() {
  try {
    const Driver& driver = load_driver();
    for (std::uint32_t ordinal = 0; ordinal < driver.device_count; ++ordinal) {
      CUdevice device = 0;
      if (driver.DeviceGet.function(&device, static_cast<int>(ordinal)) == CUDA_SUCCESS &&
          compute_capability(driver, device) >= kOldestComputeCapability) {
        return ordinal;
      }
    }
  } catch (const Error& error) {
    if (error.code() != ErrorCode::unsupported) throw;
  }
  return {};
}

}  // namespace weft::cuda
