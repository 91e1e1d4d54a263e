#pragma once

#include <weft/completion.h>
#include <weft/context.h>
#include <weft/deadline.h>
#include <weft/device_tensor.h>
#include <weft/export.h>
#include <weft/late.h>
#include <weft/plan/schedule.h>
#include <weft/plan/topology.h>
#include <weft/readback.h>
#include <weft/region.h>
#include <weft/request_form.h>
#include <weft/statistics.h>
#include <weft/tensor.h>

#include <chrono>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace weft {

class SlotPool;
struct SlotPlan;
struct SlotTensor;
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
  /// How requests are submitted; each costs an executable a slot, and host forms their staging.
  std::vector<RequestForm> forms = {RequestForm{}};
  CopyMethod copies = CopyMethod::automatic;
  Order order = Order::parallel;  ///< `serial` runs the commands in list order, to bisect with.
  /// Lets a kernel start while the one before it still runs, where both promise to wait by themselves
  /// (KernelSpec::programmatic) and run as sm_90 code or newer. `false` makes every edge a full one, to bisect with.
  bool programmatic = true;
  std::chrono::nanoseconds spin =
      std::chrono::microseconds(200);  ///< How long waits spin before they sleep between looks.
  /// A run that has not finished so long after its launch has hung: who waits for it gets `failed`, its slot is never
  /// handed out again, and neither it nor its memory is waited for when the pool and the context go. Time that it waits
  /// for other runs counts. Somebody who waits finds it out, for the run or for a slot.
  std::optional<std::chrono::nanoseconds> hang_after = {};
  /// For debugging: every region has an allocation of its own that ends where the region ends, so that memory checkers
  /// see the first byte beyond it, and begins behind a canary that `check_canaries` looks at.
  /// WEFT_SEPARATE_ALLOCATIONS=1 in the environment does the same for every prepare of a process.
  bool separate_allocations = false;
};

/// Nodes of a prepared graph as the device tells them back.
struct NodeCounts {
  std::uint64_t memset_nodes = 0;
  std::uint64_t kernel_nodes = 0;    ///< Of the model's dispatches; weft's own kernels are in `own_nodes`.
  std::uint64_t captured_nodes = 0;  ///< Of captured calls, as many as each enqueues.
  std::uint64_t own_nodes = 0;       ///< Copies in and out and of Graph::copy, completion, and fills by kernel.
  [[nodiscard]] std::uint64_t total() const noexcept {
    return memset_nodes + kernel_nodes + captured_nodes + own_nodes;
  }
};

/// How a request is submitted, beyond its inputs.
struct SubmitOptions {
  /// Where the outputs go. Empty: as the first listed form says that takes the inputs.
  std::optional<Side> outputs = {};
  /// Device outputs: tensors in memory that they are copied to, one for each or none. (A bare `{.into = {t}}` is a list
  /// of tensors to GCC 12: write `SubmitOptions{.into = {t}}`.) They may be the request's inputs,
  /// and must not overlap one another. Without any the outputs stay in the slot, and lease it.
  std::vector<DeviceTensor> into = {};
  /// What the run follows, beside what produces its tensors. What is in flight on the device orders the run there. What
  /// waits for the host (a CompletionSource, or a run behind one) has the run launched by the context's watcher, and
  /// when it fails or is cancelled the run is not launched and has that outcome.
  std::vector<Completion> after = {};
};

/// One request in flight or done, and a lease of its slot.
///
/// Move-only; used by one thread at a time. Dropping it does not stop the run: the slot is handed out again once the
/// run has drained, and no tensor or readback of it is left. Spans from `output` live as long as this object. A
/// moved-from object refuses every call with `invalid`.
class WEFT_API Inference {
 public:
  Inference(Inference&&) noexcept;
  Inference& operator=(Inference&&) noexcept;
  ~Inference();

  /// Waits until the results are readable: true, or false when the deadline passed first (nothing changed then). A
  /// deadline in the past polls. Errors: `failed` and `cancelled`, for what the run follows too; `device_lost`;
  /// `internal` if the device drained without completing the run. Cost: no allocation, no lock; spins for
  /// PrepareOptions::spin, then sleeps between looks. A wait that sleeps, and one that ends at its deadline, asks the
  /// driver how the run stands.
  [[nodiscard]] bool wait(Deadline deadline);
  /// The same for others to wait for, to be called back, to cancel the run; holds no lease. Errors: none but for a
  /// moved-from object.
  [[nodiscard]] Completion completion() const;

  /// The result of output `index`, where the host can read it: no copy. Errors: `invalid` for another element type or
  /// index, or an output that this form leaves in device memory; `busy` before the run is done; what it came to.
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

  /// Output `index` of a request with device outputs, before or after its run: the caller's tensor that it is copied
  /// to, or the slot's memory, which the tensor then leases. Its completion is the run's, and what uses it is ordered
  /// behind the run. Errors: `invalid` for another index, or a request with host outputs.
  [[nodiscard]] DeviceTensor tensor(std::size_t index) const;
  /// The same for an output region of the fragment that was prepared; errors as for `output`.
  [[nodiscard]] DeviceTensor tensor(const Region& region) const { return tensor(output_index(region)); }

  /// All outputs on their way to the host, with this request's lease: no copy beside the run's own. Errors: `invalid`
  /// when an output stays in device memory (DeviceTensor::download copies it); then this object is as it was.
  [[nodiscard]] Readback download() &&;

 private:
  friend class ModelSlot;
  friend struct PreparedAccess;
  Inference(std::shared_ptr<SlotPool> pool, std::uint32_t slot, std::size_t form, Completion completion,
            std::vector<DeviceTensor> into) noexcept;
  template <class T>
  static std::span<const T> typed(std::span<const std::byte> bytes) noexcept {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  [[nodiscard]] std::span<const std::byte> output_bytes(std::size_t index, DType dtype) const;
  [[nodiscard]] std::size_t output_index(const Region& region) const;
  void require_readable(const SlotPlan& plan, const SlotTensor& output, std::size_t index) const;

  std::shared_ptr<SlotPool> pool_;
  std::uint32_t slot_ = 0;
  std::size_t form_ = 0;
  Completion completion_;
  std::vector<DeviceTensor> into_;  // Where outputs are copied to; none where they stay in the slot.
};

/// An exclusive reservation of one slot, before its run.
///
/// Move-only; used by one thread at a time. Dropping it gives the slot back. Spans from `input` live until `submit`.
/// Late scalars that are set and late regions that are bound are so for this one request. A moved-from object refuses
/// every call with `invalid`.
class WEFT_API ModelSlot {
 public:
  ModelSlot(ModelSlot&&) noexcept;
  ModelSlot& operator=(ModelSlot&&) noexcept;
  ~ModelSlot();

  /// Where the host writes input `index`, to be filled before `submit`: pinned staging, or the input itself where it is
  /// host-visible. Its bytes are those of the slot's last request until then. Errors: `invalid` for another element
  /// type or index, or a model that is not prepared for host inputs.
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

  /// Gives a late scalar the value that it has in this request: see ModelSession::late. Errors: `invalid` for a scalar
  /// that no command of the model takes. Cost: a copy of the value; the submit then sets the nodes in which it differs
  /// from the slot's last request of that form, 0.3 to 1.2 us each.
  template <ScalarValue T>
  void set(LateScalar<T> scalar, T value) {
    set_late(scalar, std::as_bytes(std::span(&value, 1)));
  }
  /// Gives a late region the memory that it is in this request: see ModelSession::late_region. The run is ordered
  /// behind whatever produces or uses these bytes, and what uses them later behind it; the tensor may go once it is
  /// submitted. Errors, and then the region is as it was: `invalid` for a region that is no late one as a whole, or in
  /// no command of the model; a tensor of another descriptor, size or context, or of an unprepared graph, or not
  /// aligned as the commands' kernels need; one that shares bytes with the slot's own memory, with weights or state or
  /// other memory that the run uses, or with what another late region is bound to: they were planned as memory apart.
  void bind(const Region& region, const DeviceTensor& tensor);

  /// Starts the run on what `input` was filled with: one graph launch, no allocation. It takes no lock unless it
  /// touches memory outside the slot (a recorded graph's, or SubmitOptions::into), behind whose users it is then
  /// ordered. Errors: `invalid` for a form that the model is not prepared for, or tensors that do not fit; `busy` while
  /// the host maps memory that the run uses; `device_lost`, or what the device says; `invalid` for a late region that
  /// is not bound, or a late scalar that is not set and has no value of its own. The slot then stays reserved, what is
  /// set and bound stays so, and nothing runs.
  [[nodiscard]] Inference submit(SubmitOptions options = {}) &&;
  /// The same with tensors in memory as inputs, which the run copies: it is ordered behind their producers, and what
  /// writes them later behind it. They may go at once. Errors: also `invalid` for another number of tensors, another
  /// descriptor or context.
  [[nodiscard]] Inference submit(const std::vector<DeviceTensor>& inputs, SubmitOptions options = {}) &&;
  /// Copies the bytes to where the host writes the inputs, then submits. Errors: also `invalid` for another number of
  /// spans, or a span of another length than its input.
  [[nodiscard]] Inference submit_host(std::span<const std::span<const std::byte>> inputs,
                                      SubmitOptions options = {}) &&;
  /// Calls `write(slot)`, which fills the inputs in place, then submits. When it throws, or the submission is refused,
  /// the slot is given back.
  template <class Write>
  [[nodiscard]] Inference submit_host_with(Write&& write, SubmitOptions options = {}) && {
    ModelSlot slot(std::move(*this));
    std::forward<Write>(write)(slot);
    return std::move(slot).submit(std::move(options));
  }

 private:
  friend class PreparedModel;
  friend struct PreparedAccess;
  ModelSlot(std::shared_ptr<SlotPool> pool, std::uint32_t slot) noexcept;
  [[nodiscard]] std::span<std::byte> input_bytes(std::size_t index, DType dtype);
  [[nodiscard]] std::size_t input_index(const Region& region) const;
  void set_late(LateScalarId scalar, std::span<const std::byte> value);
  /// Position of the form for these inputs and the outputs of `options`, which it completes.
  [[nodiscard]] std::size_t find_form(Side inputs, SubmitOptions& options) const;
  [[nodiscard]] Inference launch(std::size_t form, std::span<const DeviceTensor> inputs, SubmitOptions options);

  std::shared_ptr<SlotPool> pool_;
  std::uint32_t slot_ = 0;
};

class SlotAwaiter;

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
  /// of another graph or context, a slot whose inputs or outputs differ from slot 0's, or share bytes with those
  /// of another slot; no request forms, or one listed twice; `busy` or `invalid` for a budget's sake; `out_of_memory`;
  /// the factory's own. On any error all slots made so far are freed.
  [[nodiscard]] static PreparedModel prepare(const Context& context,
                                             const std::function<InferenceGraph(Context&)>& factory,
                                             PrepareOptions options = {});

  /// A free slot, or empty when all are reserved or running, or others wait for one. Errors: `device_lost`; `failed`
  /// when all slots hang. Cost: no allocation; no lock, but where an output of the slot was given to other submissions
  /// as a tensor.
  [[nodiscard]] std::optional<ModelSlot> try_acquire();
  /// Waits for a free slot, behind those who wait already; empty when the deadline passed first. Errors: those of
  /// try_acquire; `internal` if the device drained without completing a run. Cost: that of try_acquire where a slot is
  /// free; else a lock, and then it waits as Inference::wait does.
  [[nodiscard]] std::optional<ModelSlot> acquire(Deadline deadline);

  /// A slot, nothing when the deadline passed first, or the error of `acquire`.
  using AcquireCallback = std::function<void(std::optional<ModelSlot> slot, std::exception_ptr error)>;
  /// Has `callback` called once with the outcome of `acquire`, on the context's watcher thread, which this starts;
  /// there it must not wait for long. What it throws is dropped and counted. Threads, callbacks and coroutines wait in
  /// one queue. Keeps the pool until then. Errors: `invalid` for an empty callback; `out_of_memory` when the thread
  /// cannot be started; `device_lost` once the process ends.
  void acquire_async(Deadline deadline, AcquireCallback callback);
  /// `co_await model.acquire_async(deadline)` has the outcome of `acquire`. The coroutine goes on at once where a slot
  /// is free, else on the context's watcher thread, and must not be destroyed while it is suspended.
  [[nodiscard]] SlotAwaiter acquire_async(Deadline deadline);

  [[nodiscard]] std::uint32_t slots() const noexcept;
  /// What is counted of its slots: see weft/statistics.h. Cost: no lock, a few loads for each slot.
  [[nodiscard]] SlotStatistics statistics() const noexcept;
  /// Whether every slot is free and drained.
  [[nodiscard]] bool is_idle() const noexcept;
  /// What the slots take: their arenas, staging and completion words, and their graphs as they were measured. Weights
  /// and state are the definition's.
  [[nodiscard]] std::uint64_t memory_bytes() const noexcept;
  [[nodiscard]] const Context& context() const noexcept;
  /// The graph of slot 0 for the request form at this position of PrepareOptions::forms, as planned. Errors: `invalid`
  /// for a form beyond the list.
  [[nodiscard]] const Topology& topology(std::size_t form = 0) const;
  /// The nodes of the graph that one slot's executable was made from, read back from the device. Errors: `invalid` for
  /// a slot beyond the pool or a form beyond the list.
  [[nodiscard]] NodeCounts node_counts(std::uint32_t slot = 0, std::size_t form = 0) const;
  /// Slots that were built alone: their factory's graph has another topology than slot 0's. All others are stamped from
  /// templates, at about a fifth of the cost.
  [[nodiscard]] const std::vector<std::uint32_t>& odd_slots() const noexcept;
  /// With `separate_allocations`: looks at the canaries of all slots. Call it while the pool is idle. Errors: `failed`,
  /// with the allocation's label, when one was overwritten; `invalid` without `separate_allocations`.
  void check_canaries() const;

 private:
  friend class ModelFragment;
  friend class SlotAwaiter;
  friend struct PreparedAccess;
  class AcquireWatch;
  explicit PreparedModel(std::shared_ptr<SlotPool> pool) noexcept;
  /// try_acquire for who goes on to wait: coming back empty is not counted.
  [[nodiscard]] std::optional<ModelSlot> take_free_slot();
  std::shared_ptr<SlotPool> pool_;
};

/// Waits for a slot in a coroutine; see PreparedModel::acquire_async.
class SlotAwaiter {
 public:
  SlotAwaiter(PreparedModel model, Deadline deadline) : model_(std::move(model)), deadline_(deadline) {}
  [[nodiscard]] bool await_ready() {
    slot_ = model_.take_free_slot();
    return slot_.has_value();
  }
  void await_suspend(std::coroutine_handle<> waiting) {
    model_.acquire_async(deadline_, [this, waiting](std::optional<ModelSlot> slot, std::exception_ptr error) {
      slot_ = std::move(slot);
      error_ = std::move(error);
      waiting();  // Last: this object may be gone then.
    });
  }
  [[nodiscard]] std::optional<ModelSlot> await_resume() {
    if (error_ != nullptr) std::rethrow_exception(error_);
    return std::move(slot_);
  }

 private:
  PreparedModel model_;
  Deadline deadline_;
  std::optional<ModelSlot> slot_;
  std::exception_ptr error_;
};

inline SlotAwaiter PreparedModel::acquire_async(Deadline deadline) { return {*this, deadline}; }

}  // namespace weft
