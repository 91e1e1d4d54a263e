#include "device/cuda/cuda_device.h"

#include "device/cuda/cuda_device_impl.h"
#include "device/cuda/cuda_limits.h"
#include "device/process_state.h"

namespace weft::cuda {

CudaDevice::CudaDevice(const Driver& driver, std::uint32_t ordinal)
    : context_(driver, ordinal), limits_(read_limits(context_)), pool_(context_), code_(context_) {
  check(probe_fill_nodes(limits_.fill_nodes_on_pool_memory), "start");
  check(health(), "start");
}

DeviceStatus CudaDevice::probe_fill_nodes(bool& accepted) noexcept {
  constexpr std::uint64_t kBytes = 280;  // Some drivers refused nodes of this size on pool memory.
  StreamHandle stream{};
  DeviceAddress address = 0;
  GraphHandle graph{};

  DeviceStatus status = create_stream(stream);
  if (status.ok()) status = allocate(stream, kBytes, address);
  if (status.ok()) status = create_graph(graph);
  if (status.ok()) status = try_fill_node(graph, {address, kBytes, 0}, accepted);

  if (graph != GraphHandle::none) static_cast<void>(destroy_graph(graph));
  if (address != 0) static_cast<void>(free(stream, address));
  if (stream != StreamHandle::none) static_cast<void>(destroy_stream(stream));
  return status;
}

DeviceStatus CudaDevice::try_fill_node(GraphHandle graph, const FillNode& fill, bool& accepted) noexcept {
  NodeHandle node{};
  ExecutableHandle executable{};
  DeviceStatus status = add_node(graph, fill, {}, node);
  if (status.ok()) status = instantiate(graph, executable);
  if (executable != ExecutableHandle::none) static_cast<void>(destroy_executable(executable));

  accepted = status.ok();
  const bool refused = status.code == StatusCode::invalid || status.code == StatusCode::unsupported;
  return refused ? DeviceStatus{} : status;
}

std::shared_ptr<DeviceApi> make_cuda_device(std::uint32_t ordinal) {
  DeviceOpening opening;
  auto device = std::make_shared<CudaDevice>(load_driver(), ordinal);
  opening.succeed();
  return device;
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
