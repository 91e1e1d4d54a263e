#pragma once

#include <weft/context.h>
#include <weft/device_tensor.h>
#include <weft/export.h>

#include <cstddef>
#include <cstdint>

// Tensors for other libraries, and from them, without a copy: DLPack 1, as PyTorch, JAX, CuPy and NumPy speak it. The
// structures below are that specification's C ABI under its own names; a pointer to one of another header's is the same
// pointer. In Python a `DLManagedTensorVersioned*` travels in a capsule named "dltensor_versioned".

namespace weft::dlpack {

inline constexpr std::uint32_t kMajorVersion = 1;  ///< Another one has another ABI.
inline constexpr std::uint32_t kMinorVersion = 0;  ///< Later ones add enumerators.

struct DLPackVersion {
  std::uint32_t major;
  std::uint32_t minor;
};

/// Of the devices of the specification, those that weft knows.
enum DLDeviceType : std::int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3 };

struct DLDevice {
  DLDeviceType device_type;
  std::int32_t device_id;  ///< 0 for host memory.
};

/// Of the type codes of the specification, those that weft knows.
enum DLDataTypeCode : std::uint8_t { kDLInt = 0, kDLUInt = 1, kDLFloat = 2, kDLBfloat = 4 };

struct DLDataType {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;  ///< 1 but for vectors.
};

struct DLTensor {
  void* data;  ///< Null for an empty tensor.
  DLDevice device;
  std::int32_t ndim;
  DLDataType dtype;
  std::int64_t* shape;
  std::int64_t* strides;  ///< In elements. Null, from older libraries: compact, last dimension innermost.
  std::uint64_t byte_offset;
};

inline constexpr std::uint64_t kReadOnlyFlag = 1;

struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);  ///< Null where there is nothing to let go.
  std::uint64_t flags;
  DLTensor dl_tensor;
};

static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensorVersioned) == 80 && offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

// A stream is a `cudaStream_t`, where null is the legacy default stream. On the host device null is the only one: it is
// the calling thread.

struct ExportOptions {
  bool read_only = false;  ///< The consumer is told not to write.
};

/// A tensor for another library, whose work on it is queued on `stream`. That stream follows what produces the tensor
/// and what is in flight on its bytes; the host does not wait.
///
/// The result is the consumer's until it calls the deleter, once, on any thread, also when nothing else of weft is
/// left; once the process ends, that does nothing. Until then the tensor's slot stays leased, or its memory alive. From
/// then on the slot's next run, or what touches the memory, follows what is queued on the stream, which therefore must
/// live so long. In between weft does not know of the consumer's work: what else uses the same bytes is ordered by the
/// caller. Errors: `busy` while the tensor's producer waits for the host, or while the host maps its memory; on the
/// host device also while work is in flight on it; what its producer came to; `invalid` for a tensor of a graph, a
/// stream that is being captured, or the per-thread default stream, which is another one on every thread.
[[nodiscard]] WEFT_API DLManagedTensorVersioned* export_tensor(const DeviceTensor& tensor, void* stream = nullptr,
                                                               ExportOptions options = {});

/// A tensor of another library, whose values are there once what is queued on `stream` is done. Memory that is flagged
/// as read-only is never written: requests and copies that would are refused with `invalid`.
///
/// The deleter is called once, when no handle is left and what was queued on the memory has drained, on whichever
/// thread finds that out; once the process ends, not at all. Two tensors over the same bytes that are imported apart
/// stand in no order with one another. Errors, and then `managed` stays the caller's: `invalid` for null, another
/// device than the context's, an element type that weft does not have or vectors, negative or broadcast strides, a
/// start that is no multiple of the element size, bytes that are no memory of the device, or a stream that is being
/// captured; `unsupported` for another major version.
[[nodiscard]] WEFT_API DeviceTensor import_tensor(const Context& context, DLManagedTensorVersioned* managed,
                                                  void* stream = nullptr);

}  // namespace weft::dlpack
