#pragma once

#include <weft/adopted_memory.h>
#include <weft/budget.h>
#include <weft/command.h>
#include <weft/context.h>
#include <weft/device.h>
#include <weft/export.h>
#include <weft/host_tensor.h>
#include <weft/kernel.h>
#include <weft/late.h>
#include <weft/model.h>
#include <weft/region.h>
#include <weft/scalar.h>
#include <weft/tensor.h>
#include <weft/trusted.h>
#include <weft/typed_kernel.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft {

class SessionState;

struct SessionOptions {
  /// Charged for what the session takes from the device. Weights and state that the session charged to the budget of
  /// the context that it is frozen into are not charged again.
  std::optional<MemoryBudget> budget = {};
};

/// Builds a model: allocations, weights, state and kernels. Ends in `freeze`.
///
/// Until then it can also run: `upload`, `record` and `replay` put work on the session's stream, in their order, and
/// `read` and `synchronize` wait for it. That serves warm-up, preparation of weights and state, and tests of kernels;
/// what is left in scratch is gone after the freeze. Scratch takes memory, zeroed, with the first of these calls that
/// touches it.
///
/// Move-only; used by one thread at a time. A moved-from or frozen session refuses every call with `invalid`. Once
/// queued work has failed at the device the session is done for: every later call is refused with `failed` and the
/// cause. A session dropped with work queued waits for none of it, and keeps what that work uses until it is done.
class WEFT_API ModelSession {
 public:
  /// Opens the device, or shares it with who has it open. Errors: those of Context::open.
  explicit ModelSession(Device device, SessionOptions options = {});
  ModelSession(ModelSession&& other) noexcept;
  ModelSession& operator=(ModelSession&& other) noexcept;
  ~ModelSession();

  /// Scratch of a size in bytes. Each prepared slot gets its own, zeroed, of the extent that its commands use. Errors:
  /// `invalid` for 0 bytes.
  [[nodiscard]] Region allocate(std::uint64_t bytes, AllocationOptions options = {});
  /// Scratch for one tensor. Errors: `invalid` for an empty tensor.
  [[nodiscard]] TensorRegion allocate(const TensorDesc& desc, AllocationOptions options = {});
  template <Element T>
  [[nodiscard]] TypedRegion<T> allocate(Shape shape, AllocationOptions options = {}) {
    TensorDesc desc(DTypeOf<T>::value, std::move(shape));
    return {allocate(desc, std::move(options)), desc};
  }

  /// `allocate` in host memory that the device can reach: Placement::shared.
  [[nodiscard]] Region allocate_shared(std::uint64_t bytes, std::string label = {}) {
    return allocate(bytes, {.label = std::move(label), .placement = Placement::shared});
  }
  [[nodiscard]] TensorRegion allocate_shared(const TensorDesc& desc, std::string label = {}) {
    return allocate(desc, {.label = std::move(label), .placement = Placement::shared});
  }
  template <Element T>
  [[nodiscard]] TypedRegion<T> allocate_shared(Shape shape, std::string label = {}) {
    return allocate<T>(std::move(shape), {.label = std::move(label), .placement = Placement::shared});
  }

  /// Memory that runs of the model may write and that outlives them: a KV cache, the state of a recurrence. There is
  /// one of it, whatever the number of fragments, slots and graphs, and it lives as long as any of them. Runs that
  /// write the same bytes of it come one after the other in the order of their submission, runs that only read them
  /// overlap. It is taken at once and zeroed; what is in it at the freeze, by an `upload` or a `replay`, is what the
  /// first run finds. ModelDefinition::state reads and writes it from then on.
  ///
  /// Inputs and outputs are never state, as each slot has its own. Errors, and then nothing is kept: `invalid` for 0
  /// bytes; `out_of_memory`; `busy` or `invalid` from the budget.
  [[nodiscard]] Region state(std::uint64_t bytes, AllocationOptions options = {});
  /// State for one tensor. Errors: also `invalid` for an empty tensor.
  [[nodiscard]] TensorRegion state(const TensorDesc& desc, AllocationOptions options = {});
  template <Element T>
  [[nodiscard]] TypedRegion<T> state(Shape shape, AllocationOptions options = {}) {
    TensorDesc desc(DTypeOf<T>::value, std::move(shape));
    return {state(desc, std::move(options)), desc};
  }

  /// A scalar that each request brings, by ModelSlot::set: `scale(workload(n), x, y, session.late<float>({.label =
  /// "alpha"}), n)`. It stands in any number of dispatches, where a scalar of exactly its width may stand but no device
  /// pointer; it has no place in the session's own graphs.
  template <ScalarValue T>
  [[nodiscard]] LateScalar<T> late(LateOptions<T> options = {}) {
    return LateScalar<T>(add_late(std::move(options.label), sizeof(T),
                                  options.value ? std::optional(Scalar(*options.value)) : std::nullopt));
  }

  /// Memory that each request brings, by ModelSlot::bind: it has no bytes of its own, and commands bind it, or slices
  /// of it, like any region, as memory apart from all other. It is no input or output, and nothing can be done to it
  /// before the freeze; a captured call, whose addresses are recorded once, cannot bind it. Errors: `invalid` for 0
  /// bytes.
  [[nodiscard]] Region late_region(std::uint64_t bytes, LateRegionOptions options = {});
  /// The same for tensors of this descriptor. Errors: `invalid` for an empty one.
  [[nodiscard]] TensorRegion late_region(const TensorDesc& desc, LateRegionOptions options = {});
  template <Element T>
  [[nodiscard]] TypedRegion<T> late_region(Shape shape, LateRegionOptions options = {}) {
    TensorDesc desc(DTypeOf<T>::value, std::move(shape));
    return {late_region(desc, std::move(options)), desc};
  }

  /// Device memory with these bytes, immutable from `freeze` on and shared by all that uses the model. The bytes are
  /// read before it returns, through two bounded pinned buffers, so that they may be the pages of a mapped file; the
  /// copy goes on afterwards. Label and descriptor come from the tensor. Errors, and then nothing is kept: `invalid`
  /// for an empty tensor or one whose bytes are not those of its descriptor; `out_of_memory`; `busy` or `invalid` from
  /// the budget.
  [[nodiscard]] TensorRegion weight(const HostTensor& tensor);
  /// The same, with the element type checked: `invalid` when the tensor holds another one.
  template <Element T>
  [[nodiscard]] TypedRegion<T> weight(const HostTensor& tensor) {
    require_dtype(tensor, DTypeOf<T>::value);
    const TensorRegion region = weight(tensor);
    return {region, region.desc};
  }

  /// Device memory of somebody else as a weight, without a copy. The caller vouches that it lives until it is released,
  /// and that nothing writes it from the freeze on. It counts as requested and among the weight's bytes, but not as
  /// reserved, and no budget is charged: weft takes nothing. Errors, and then it stays the caller's and `release` is
  /// not called: `invalid` for an empty tensor, an address that is no multiple of 256, or bytes that do not all stand
  /// in one allocation in the memory of this device.
  [[nodiscard]] TensorRegion weight(Trusted, AdoptedMemory memory, const TensorDesc& desc, std::string label = {});
  template <Element T>
  [[nodiscard]] TypedRegion<T> weight(Trusted tag, AdoptedMemory memory, Shape shape, std::string label = {}) {
    const TensorRegion region =
        weight(tag, std::move(memory), TensorDesc(DTypeOf<T>::value, std::move(shape)), std::move(label));
    return {region, region.desc};
  }

  /// Loads a kernel; an image that this session has loaded before is not loaded again. Errors, and then nothing is
  /// kept: `invalid` when the image lacks the symbol, or the compiled layout contradicts the spec; `unsupported` when
  /// the image has no code for this device, or the spec asks for clusters before sm_90. Bytes that are no image are
  /// one or the other, as the driver takes them. The host device looks at no code, and runs the spec's reference.
  [[nodiscard]] KernelId load(const KernelSpec& spec);
  template <class... P>
  [[nodiscard]] Kernel<P...> load(const TypedKernelSpec<P...>& spec) {
    return Kernel<P...>(load(spec.make()));
  }

  /// Queues a copy of `bytes` to a region, a weight's too. They are read before it returns. Errors: `invalid` for a
  /// region that is not of this session, or of another size; `out_of_memory`, `busy`.
  void upload(const Region& region, std::span<const std::byte> bytes);

  /// Waits for all queued work and copies a region to `bytes`. Errors, before any wait: `invalid` for a region that is
  /// not of this session, or of another size; `out_of_memory`, `busy`.
  void read(const Region& region, std::span<std::byte> bytes);
  /// The same for several regions, with one wait: the bytes of each, in order.
  [[nodiscard]] std::vector<std::vector<std::byte>> read_many(const std::vector<Region>& regions);

  /// Builds a graph of the commands, over the session's own memory, to be replayed under `key`; it takes the place of
  /// one recorded under the key before. Runs nothing. Weights may be written. Errors, and then the earlier graph stays:
  /// `invalid` as for ModelDefinition::fragment, and for no commands; `out_of_memory`, `busy`.
  void record(const std::string& key, const std::vector<Command>& commands);
  /// Queues one run of a recorded graph. Errors: `invalid` when nothing is recorded under the key.
  void replay(const std::string& key);

  /// Waits for all queued work.
  void synchronize();

  /// Waits for all queued work and makes the model immutable, but for its state. Weights and state move to the context
  /// as they are, without a copy, and are charged to its budget; scratch remains as sizes, and recorded graphs are
  /// gone. Consumes the session, whatever comes of it. Errors: `invalid` when the context is of another device; `busy`
  /// or `invalid` when its budget does not take the weights and the state; `failed` for a session that has failed.
  [[nodiscard]] ModelDefinition freeze(const Context& context) &&;

 private:
  /// Errors: `invalid` for a session that is moved from or frozen; those of SessionState::require_healthy.
  [[nodiscard]] SessionState& require_usable() const;
  static void require_dtype(const HostTensor& tensor, DType dtype);
  [[nodiscard]] LateScalarId add_late(std::string label, std::size_t bytes, std::optional<Scalar> value);
  std::shared_ptr<SessionState> state_;
};

}  // namespace weft
