#include "device/cuda/cuda_status.h"

#include <algorithm>

namespace weft::cuda {
namespace {

using enum StatusCode;

// Sticky are the codes after which, by the driver's documentation, "any further CUDA work will return the same error",
// and two that end the context for all its users: the driver shuts down (4), somebody reset the primary context (709).
//
// CUDA_ERROR_UNKNOWN (999) is not among them: nothing says that it stays, and a context that is really over answers
// again at the next call. Neither are 701 and 720, which refuse the shape of one launch.
constexpr StatusRule kTable[] = {
    {CUDA_SUCCESS, ok, nullptr},
    {CUDA_ERROR_INVALID_VALUE, invalid, nullptr},
    {CUDA_ERROR_OUT_OF_MEMORY, out_of_memory, nullptr},
    {CUDA_ERROR_DEINITIALIZED, device_lost, "the CUDA driver is shutting down"},
    {CUDA_ERROR_STUB_LIBRARY, unsupported, "the loaded libcuda is the toolkit's stub"},
    {CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER, unsupported, "the call needs a newer driver"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, unsupported, "the GPU is taken exclusively or its compute mode prohibits contexts"},
    {CUDA_ERROR_NO_DEVICE, unsupported, "there is no GPU"},
    {CUDA_ERROR_INVALID_DEVICE, invalid, "there is no GPU of this ordinal"},
    {CUDA_ERROR_DEVICE_NOT_LICENSED, unsupported, "the virtual GPU has no licence"},
    {CUDA_ERROR_INVALID_IMAGE, invalid, "the image is not a fatbin, a cubin or PTX"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, unsupported, "the image has no code for this GPU"},
    {CUDA_ERROR_ECC_UNCORRECTABLE, device_lost, "an uncorrectable memory (ECC) error"},
    {CUDA_ERROR_INVALID_PTX, invalid, "the image is no valid PTX"},
    {CUDA_ERROR_NVLINK_UNCORRECTABLE, device_lost, "an uncorrectable NVLink error"},
    {CUDA_ERROR_JIT_COMPILER_NOT_FOUND, unsupported,
     "the image has only PTX for this GPU, and the driver's PTX compiler is not installed"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, unsupported,
     "the image's PTX comes from a newer toolkit than this driver compiles"},
    {CUDA_ERROR_JIT_COMPILATION_DISABLED, unsupported,
     "the image has only PTX for this GPU, and compiling it is disabled (CUDA_DISABLE_PTX_JIT)"},
    {CUDA_ERROR_UNSUPPORTED_DEVSIDE_SYNC, unsupported, "the image's PTX synchronizes with the device from a kernel"},
    {static_cast<CUresult>(226), device_lost, "a contained hardware error"},
    {CUDA_ERROR_INVALID_SOURCE, invalid, "the image is not valid code"},
    {CUDA_ERROR_INVALID_HANDLE, invalid, nullptr},
    {CUDA_ERROR_ILLEGAL_STATE, invalid, nullptr},
    {CUDA_ERROR_NOT_FOUND, invalid, "the image has no such symbol"},
    {CUDA_ERROR_NOT_READY, not_ready, nullptr},
    {CUDA_ERROR_ILLEGAL_ADDRESS, device_lost, "a kernel used an address that is not mapped"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, invalid, "the launch needs more registers or shared memory"},
    {CUDA_ERROR_LAUNCH_TIMEOUT, device_lost, "a kernel ran into the display's time limit"},
    {CUDA_ERROR_CONTEXT_IS_DESTROYED, device_lost, "the GPU's primary context was reset"},
    {CUDA_ERROR_ASSERT, device_lost, "an assertion failed in a kernel"},
    {CUDA_ERROR_HARDWARE_STACK_ERROR, device_lost, "a kernel's stack overflowed"},
    {CUDA_ERROR_ILLEGAL_INSTRUCTION, device_lost, "a kernel ran an illegal instruction"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, device_lost, "a kernel used a misaligned address"},
    {CUDA_ERROR_INVALID_ADDRESS_SPACE, device_lost, "a kernel used an address of the wrong space"},
    {CUDA_ERROR_INVALID_PC, device_lost, "a kernel's program counter left its code"},
    {CUDA_ERROR_LAUNCH_FAILED, device_lost, "a kernel trapped"},
    {CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, invalid, nullptr},
    {static_cast<CUresult>(721), device_lost, "a kernel left tensor memory allocated"},  // No name in 12.8.
    {CUDA_ERROR_NOT_PERMITTED, invalid, nullptr},
    {CUDA_ERROR_NOT_SUPPORTED, unsupported, nullptr},
    {CUDA_ERROR_SYSTEM_NOT_READY, unsupported,
     "the system is not ready for CUDA work (on HGX machines: is the fabric manager running?)"},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, unsupported, "libcuda and the kernel's driver are of different versions"},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, unsupported,
     "the forward-compatibility libcuda does not support this GPU"},
    {CUDA_ERROR_MPS_CONNECTION_FAILED, unsupported, "the MPS server does not answer"},
    {CUDA_ERROR_MPS_CLIENT_TERMINATED, device_lost, "the MPS server ended this client"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, invalid, "the stream is being captured"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, invalid, "the stream's capture was invalidated"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, invalid, "two captures were merged"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, invalid, "the stream's capture was begun elsewhere"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, invalid, "another stream that joined the capture was not joined back"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, invalid, "the capture depends on work outside it"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, invalid, "the capture of another stream holds the legacy default stream"},
    {CUDA_ERROR_CAPTURED_EVENT, invalid, "the event was recorded in a capture"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, invalid, "the stream's capture was begun by another thread"},
    {CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, invalid, nullptr},
    {CUDA_ERROR_EXTERNAL_DEVICE, device_lost, "a device outside CUDA signalled an error"},
    {CUDA_ERROR_INVALID_CLUSTER_SIZE, invalid, "the cluster does not fit"},
    {CUDA_ERROR_INVALID_RESOURCE_TYPE, invalid, nullptr},
    {CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION, invalid, nullptr},
};

static_assert(std::ranges::is_sorted(kTable, {}, &StatusRule::native));

}  // namespace

std::span<const StatusRule> status_table() noexcept { return kTable; }

DeviceStatus to_status(CUresult result, const char* call) noexcept {
  const auto rule = std::ranges::lower_bound(kTable, result, {}, &StatusRule::native);
  if (rule == std::ranges::end(kTable) || rule->native != result) return {internal, result, call};
  return {rule->code, result, rule->detail != nullptr ? rule->detail : call};
}

}  // namespace weft::cuda
