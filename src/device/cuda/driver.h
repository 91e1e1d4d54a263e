#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>

#include <cstdint>
#include <optional>
#include <string>

namespace weft::cuda {

// The driver functions that weft calls, each with the version of the signature that it is written for. The
// legacy-stream variants: weft names a stream of its own in every call.
#define WEFT_DRIVER_ENTRIES(X)                       \
  X(DeviceGet, 2000)                                 \
  X(DeviceGetName, 2000)                             \
  X(DeviceGetAttribute, 2000)                        \
  X(DeviceTotalMem, 3020)                            \
  X(DevicePrimaryCtxRetain, 7000)                    \
  X(DevicePrimaryCtxRelease, 11000)                  \
  X(CtxGetCurrent, 4000)                             \
  X(CtxSetCurrent, 4000)                             \
  X(ThreadExchangeStreamCaptureMode, 10010)          \
  X(MemGetInfo, 3020)                                \
  X(MemPoolCreate, 11020)                            \
  X(MemPoolDestroy, 11020)                           \
  X(MemPoolGetAttribute, 11020)                      \
  X(MemPoolSetAttribute, 11020)                      \
  X(MemPoolTrimTo, 11020)                            \
  X(MemAllocFromPoolAsync, 11020)                    \
  X(MemFreeAsync, 11020)                             \
  X(MemHostAlloc, 2020)                              \
  X(MemFreeHost, 2000)                               \
  X(MemsetD8Async, 3020)                             \
  X(MemcpyAsync, 4000)                               \
  X(PointerGetAttributes, 7000)                      \
  X(LibraryLoadData, 12000)                          \
  X(LibraryUnload, 12000)                            \
  X(LibraryGetKernel, 12000)                         \
  X(LibraryGetGlobal, 12000)                         \
  X(LibraryGetKernelCount, 12040)                    \
  X(LibraryEnumerateKernels, 12040)                  \
  X(KernelGetFunction, 12000)                        \
  X(KernelGetAttribute, 12000)                       \
  X(KernelSetAttribute, 12000)                       \
  X(KernelGetParamInfo, 12040)                       \
  X(KernelGetName, 12030)                            \
  X(FuncGetName, 12030)                              \
  X(OccupancyMaxActiveBlocksPerMultiprocessor, 6050) \
  X(OccupancyMaxActiveClusters, 11070)               \
  X(GraphCreate, 10000)                              \
  X(GraphDestroy, 10000)                             \
  X(GraphAddNode, 12030)                             \
  X(GraphDestroyNode, 10000)                         \
  X(GraphNodeSetParams, 12020)                       \
  X(GraphExecNodeSetParams, 12020)                   \
  X(GraphGetNodes, 10000)                            \
  X(GraphGetEdges, 12030)                            \
  X(GraphNodeGetType, 10000)                         \
  X(GraphKernelNodeGetParams, 12000)                 \
  X(GraphKernelNodeSetAttribute, 11000)              \
  X(GraphKernelNodeCopyAttributes, 11000)            \
  X(GraphMemcpyNodeGetParams, 10000)                 \
  X(GraphMemsetNodeGetParams, 10000)                 \
  X(GraphHostNodeGetParams, 10000)                   \
  X(GraphChildGraphNodeGetGraph, 10000)              \
  X(GraphInstantiateWithFlags, 11040)                \
  X(GraphUpload, 11010)                              \
  X(GraphLaunch, 10000)                              \
  X(GraphExecDestroy, 10000)                         \
  X(StreamCreate, 2000)                              \
  X(StreamQuery, 2000)                               \
  X(StreamSynchronize, 2000)                         \
  X(StreamDestroy, 4000)                             \
  X(StreamIsCapturing, 10000)                        \
  X(StreamBeginCapture, 10010)                       \
  X(StreamEndCapture, 10000)                         \
  X(StreamWaitEvent, 3020)                           \
  X(EventCreate, 2000)                               \
  X(EventRecord, 2000)                               \
  X(EventElapsedTime, 2000)                          \
  X(EventQuery, 2000)                                \
  X(EventSynchronize, 2000)                          \
  X(EventDestroy, 4000)

/// A driver function and its name, for messages.
template <class Function>
struct Entry {
  Function function = nullptr;
  const char* name = "";
};

/// The driver's functions. Nothing of weft links libcuda: a machine without a driver starts the program and is told so.
struct Driver {
  std::uint32_t version = 0;       ///< 13000 for CUDA 13.0.
  std::uint32_t device_count = 0;  ///< At least 1.
#define X(symbol, since) Entry<PFN_cu##symbol##_v##since> symbol{nullptr, "cu" #symbol};
  WEFT_DRIVER_ENTRIES(X)
#undef X
};

/// What the machine has of a driver.
struct DriverPresence {
  int version = 0;  ///< 0: there is no driver library.
  int error = 0;    ///< Of counting the devices.
  int device_count = 0;
  std::string error_text = {};  ///< Of `error`.
};

/// Why a driver is of no use to weft, as a sentence; empty when it is.
[[nodiscard]] std::optional<std::string> why_unusable(const DriverPresence& presence);

/// The driver, loaded once for the process. A failure is not remembered: the next call tries again. Thread-safe. Throws
/// `unsupported` with the sentence of why_unusable.
[[nodiscard]] const Driver& load_driver();

}  // namespace weft::cuda
