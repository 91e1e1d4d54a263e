#pragma once

#include <weft/context.h>
#include <weft/deadline.h>
#include <weft/export.h>
#include <weft/plan/schedule.h>
#include <weft/plan/topology.h>
#include <weft/region.h>
#include <weft/tensor.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

namespace weft {

class SlotPool;
struct InferenceGraph;

/// How inputs and outputs travel between pinned staging and the device.
enum class CopyMethod : std::uint8_t {
  automatic,  ///< By a kernel up to kCopyKernelBytes, by a copy engine beyond.
  kernel,     ///< By weft's copy kernel: least latency for small tensors.
  engine,     ///< By a copy engine (a memcpy node): least work for the multiprocessors.
};

/// Largest tensor that CopyMethod::automatic copies by a kernel. Seen on an H200, one request in flight: a kernel is
/// faster at every size up to this one, by 9 us at 4 KiB and by 1.06 x to 1.2 x from 1 MiB on; larger ones were not
/// measured.
inline constexpr std::uint64_t kCopyKernelBytes = 8 * 1024 * 1024;

struct PrepareOptions {
  std::uint32_t slots = 1;  ///< Requests that can be in flight at once.
  CopyMethod copies = CopyMethod::automatic;
  Order order = Order::parallel;  ///< `serial` runs the commands in list order, to bisect with.
  std::chrono::nanoseconds spin =
      std::chrono::microseconds(200);  ///< How long waits spin before they sleep between looks.
  /// For debugging: every region has an allocation of its own that ends where the region ends, so that memory checkers
  /// see the first byte beyond it, and begins behind a canary that `check_canaries` looks at.
  /// WEFT_SEPARATE_ALLOCATIONS=1 in the environment does the same for every prepare of a process.
  bool separate_allocations = false;
};

/// Nodes of a prepared graph as the device tells them back.
struct NodeCounts {
  std::uint64_t memset_nodes = 0;
  std::uint64_t kernel_nodes = 0;  ///< Of the model's dispatches; weft's own kernels are in `own_nodes`.
  std::uint64_t own_nodes = 0;     ///< Copies in and out, completion, and fills by kernel.
  [[nodiscard]] std::uint64_t total() const noexcept { return memset_nodes + kernel_nodes + own_nodes; }
};

/// One request in flight or done, and the lease of its slot.
///
/// Move-only; used by one thread at a time. Dropping it does not stop the run: the slot is handed out again once the
/// run has drained. Spans from `output` live as long as this object. A moved-from object refuses every call with
/// `invalid`.
class WEFT_API Inference {
 public:
  Inference(Inference&&) noexcept;
  Inference& operator=(Inference&&) noexcept;
  ~Inference();

  /// Waits until the results are readable: true, or false when the deadline passed first (nothing changed then). A
  /// deadline in the past polls. Errors: `device_lost`; `internal` if the device drained without completing the run.
  /// Cost: no allocation, no lock; spins for PrepareOptions::spin, then sleeps between looks. A wait that sleeps, and
  /// one that ends at its deadline, asks the driver how the run stands.
  [[nodiscard]] bool wait(Deadline deadline);

  /// The result of output `index`, in pinned staging: no copy. Errors: `invalid` for another element type or index;
  /// `busy` before a wait has returned true.
  template <Element T>
  [[nodiscard]] std::span<const T> output(std::size_t index) const {
    return typed<T>(output_bytes(index, DTypeOf<T>::value));
  }
  /// The result of an output region of the fragment that was prepared. Errors: also `invalid` for a region that is no
  /// output, or is listed twice and so needs its index.
  template <Element T>
  [[nodiscard]] std::span<const T> output(const TypedRegion<T>& region) const {
    return output<T>(output_index(region));
  }

 private:
  friend class ModelSlot;
  Inference(std::shared_ptr<SlotPool> pool, std::uint32_t slot, std::uint64_t run) noexcept;
  template <class T>
  static std::span<const T> typed(std::span<const std::byte> bytes) noexcept {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  [[nodiscard]] std::span<const std::byte> output_bytes(std::size_t index, DType dtype) const;
  [[nodiscard]] std::size_t output_index(const Region& region) const;

  std::shared_ptr<SlotPool> pool_;
  std::uint32_t slot_ = 0;
  std::uint64_t run_ = 0;  // The count that the slot's completion word reaches.
  bool complete_ = false;
};

/// An exclusive reservation of one slot, before its run.
///
/// Move-only; used by one thread at a time. Dropping it gives the slot back. Spans from `input` live until `submit`. A
/// moved-from object refuses every call with `invalid`.
class WEFT_API ModelSlot {
 public:
  ModelSlot(ModelSlot&&) noexcept;
  ModelSlot& operator=(ModelSlot&&) noexcept;
  ~ModelSlot();

  /// The pinned staging of input `index`, to be filled before `submit`. Its bytes are those of the slot's last request
  /// until then. Errors: `invalid` for another element type or index.
  template <Element T>
  [[nodiscard]] std::span<T> input(std::size_t index) {
    const std::span<std::byte> bytes = input_bytes(index, DTypeOf<T>::value);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  /// The staging of an input region of the fragment that was prepared. Errors: also `invalid` for a region that is no
  /// input, or is listed twice and so needs its index.
  template <Element T>
  [[nodiscard]] std::span<T> input(const TypedRegion<T>& region) {
    return input<T>(input_index(region));
  }

  /// Starts the run: one graph launch, no allocation, no lock. Errors: `device_lost`, or what the device says; the slot
  /// then stays reserved and nothing runs.
  [[nodiscard]] Inference submit() &&;

 private:
  friend class PreparedModel;
  ModelSlot(std::shared_ptr<SlotPool> pool, std::uint32_t slot) noexcept;
  [[nodiscard]] std::span<std::byte> input_bytes(std::size_t index, DType dtype);
  [[nodiscard]] std::size_t input_index(const Region& region) const;

  std::shared_ptr<SlotPool> pool_;
  std::uint32_t slot_ = 0;
};

/// A bounded pool of slots, each with an executable graph, a stream and memory of its own.
///
/// A shared handle; thread-safe. Keeps weights, code and context alive. Dropping it with runs in flight does not wait:
/// arenas are given back behind them, and what else they use (staging, weights, code) once they have drained, when the
/// context next prepares or drops a pool or is asked for its memory.
class WEFT_API PreparedModel {
 public:
  // No move: a handle that is moved from stays one.
  PreparedModel(const PreparedModel&) = default;
  PreparedModel& operator=(const PreparedModel&) = default;

  /// Calls `factory` once a slot and prepares what it returns. Errors: `invalid` for 0 slots, an empty graph, tensors
  /// of another graph or context, or a slot whose inputs or outputs differ from slot 0's; `out_of_memory`; the
  /// factory's own. On any error all slots made so far are freed.
  [[nodiscard]] static PreparedModel prepare(const Context& context,
                                             const std::function<InferenceGraph(Context&)>& factory,
                                             PrepareOptions options = {});

  /// A free slot, or empty when all are reserved or running. Errors: `device_lost`. Cost: no allocation, no lock.
  [[nodiscard]] std::optional<ModelSlot> try_acquire();
  /// Waits for a free slot; empty when the deadline passed first. Errors: `device_lost`; `internal` if the device
  /// drained without completing a run. Cost: no allocation, no lock; waits as Inference::wait does.
  [[nodiscard]] std::optional<ModelSlot> acquire(Deadline deadline);

  [[nodiscard]] std::uint32_t slots() const noexcept;
  /// Whether every slot is free and drained.
  [[nodiscard]] bool is_idle() const noexcept;
  [[nodiscard]] const Context& context() const noexcept;
  /// The graph of slot 0, as planned.
  [[nodiscard]] const Topology& topology() const noexcept;
  /// The nodes of one slot's graph, read back from the device. Errors: `invalid` for a slot beyond the pool.
  [[nodiscard]] NodeCounts node_counts(std::uint32_t slot = 0) const;
  /// With `separate_allocations`: looks at the canaries of all slots. Call it while the pool is idle. Errors: `failed`,
  /// with the allocation's label, when one was overwritten; `invalid` without `separate_allocations`.
  void check_canaries() const;

 private:
  friend class ModelFragment;
  explicit PreparedModel(std::shared_ptr<SlotPool> pool) noexcept;
  std::shared_ptr<SlotPool> pool_;
};

}  // namespace weft
