#pragma once

#include <weft/adopted_memory.h>
#include <weft/budget.h>
#include <weft/device.h>
#include <weft/export.h>
#include <weft/host_tensor.h>
#include <weft/region.h>
#include <weft/statistics.h>
#include <weft/tensor.h>
#include <weft/trace.h>
#include <weft/trusted.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace weft {

class Buffer;
class ContextState;
class DeviceTensor;

/// Device memory from somebody else's allocator (RMM, torch), used for arenas in place of weft's own pool.
///
/// Both are called on the thread that prepares or drops a model and must be safe from several threads. `stream` is the
/// device's stream (a `CUstream` on CUDA); memory is used by work that follows on it and is given back in its order.
struct Allocator {
  /// Returns memory aligned to 256 at least, or null when there is none.
  std::function<void*(std::uint64_t bytes, void* stream)> allocate;
  /// Must not throw.
  std::function<void(void* address, std::uint64_t bytes, void* stream)> release;
};

struct ContextOptions {
  Allocator allocator = {};                 ///< Both functions or neither.
  std::optional<MemoryBudget> budget = {};  ///< Without one the device's memory is the ceiling.
};

/// What a device says of itself.
struct DeviceProperties {
  std::string name;                      ///< "NVIDIA H200"; "host" for the host device.
  std::uint32_t compute_capability = 0;  ///< 90 for sm_90.
  std::uint32_t driver_version = 0;      ///< 13000 for CUDA 13.0; 0 for the host device.
  std::uint64_t total_memory_bytes = 0;
};

/// One open device with its memory: the domain in which models are frozen, graphs built and slots prepared.
///
/// A shared handle: copies mean the same context, and everything made in a context keeps it alive. Thread-safe. The
/// last handle waits for work in flight; no other destructor does.
class WEFT_API Context {
 public:
  // No move: a handle that is moved from stays one.
  Context(const Context&) = default;
  Context& operator=(const Context&) = default;

  /// Opens a device. On CUDA it takes the primary context. Contexts of one device share weft's memory pool there.
  /// Errors: `unsupported`, with the reason (no driver, no such device, driver too old, no code for this GPU);
  /// `invalid` for half an allocator. A failed start can be retried. Cost: the first one initialises the driver (about
  /// 200 ms on CUDA).
  [[nodiscard]] static Context open(Device device = Device::cuda(0), ContextOptions options = {});

  [[nodiscard]] Device device() const noexcept;
  [[nodiscard]] DeviceProperties properties() const;
  /// Memory that models of this context hold now.
  [[nodiscard]] MemoryStatistics memory() const;
  /// All that this context counts, its memory included. Errors: `device_lost` in a forked child or an exiting process.
  /// Cost: a short lock, and a few loads for each slot.
  [[nodiscard]] ContextStatistics statistics() const;
  /// Whether requests can be served: the device is not lost and the process neither exits nor is a forked child. Says
  /// nothing of free slots. Errors: none. Cost: no lock, no call of the driver.
  [[nodiscard]] Readiness ready() const;
  /// Records what becomes of requests from now on, as far as the host sees it, until the recording is stopped or
  /// dropped. Errors: `invalid` for a capacity of 0; `busy` while there is another recording of this context;
  /// `out_of_memory`. Cost: the ring of events at once; then a short lock for each event.
  [[nodiscard]] TraceRecording start_trace(TraceOptions options = {}) const;

  /// Memory of this context, zeroed before anything uses it. Errors, and then nothing is kept: `invalid` for 0 bytes,
  /// more than 2^63 - 1, or more than the budget's ceiling; `busy` when the budget is used up; `out_of_memory`.
  [[nodiscard]] Buffer allocate(std::uint64_t bytes, AllocationOptions options = {}) const;
  /// Device memory of somebody else as a buffer, with what is in it and without a copy. Bytes that are written now
  /// stand in no order with what weft queues: weft/cuda.h makes what is queued elsewhere a completion to follow. The
  /// budget is not charged. Errors, and then the memory stays the caller's: `invalid` for 0 bytes, what is no memory of
  /// the device, leaves its allocation, or starts at no multiple of 256.
  [[nodiscard]] Buffer adopt(Trusted, AdoptedMemory memory, std::uint64_t bytes, std::string label = {}) const;
  /// A tensor of zeroes in memory of its own. An empty one has no memory. Errors: those of `allocate`.
  [[nodiscard]] DeviceTensor tensor(const TensorDesc& desc, AllocationOptions options = {}) const;
  /// A tensor with these bytes, in device memory. Returns before the copy is done, and waits for no other
  /// work than earlier uploads; the bytes may go at once. Errors:
  /// those of `allocate`, and `invalid` when the bytes are not those of the descriptor.
  [[nodiscard]] DeviceTensor upload(const HostTensor& tensor) const;
  /// The tensors one after the other along their first dimension, in memory of its own. Returns before the copies are
  /// done. Errors: `invalid` for no tensors, a scalar, tensors that differ in element type, layout or other dimensions,
  /// are not contiguous or are of another context or a graph; those of `allocate`; `busy` while the host maps one.
  [[nodiscard]] DeviceTensor concatenate(const std::vector<DeviceTensor>& tensors) const;

  /// Whether both are handles to the same context.
  friend bool operator==(const Context&, const Context&) = default;

 private:
  friend struct ContextAccess;
  explicit Context(std::shared_ptr<ContextState> state) noexcept;
  std::shared_ptr<ContextState> state_;
};

}  // namespace weft
