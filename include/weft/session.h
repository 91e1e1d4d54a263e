#pragma once

#include <weft/context.h>
#include <weft/device.h>
#include <weft/export.h>
#include <weft/host_tensor.h>
#include <weft/kernel.h>
#include <weft/model.h>
#include <weft/region.h>
#include <weft/tensor.h>
#include <weft/typed_kernel.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace weft {

/// Builds a model: allocations, weights and kernels. Ends in `freeze`.
///
/// Move-only; used by one thread at a time. A moved-from or frozen session refuses every call with `invalid`.
class WEFT_API ModelSession {
 public:
  /// Opens the device, or shares it with who has it open. Errors: those of Context::open.
  explicit ModelSession(Device device);
  ModelSession(ModelSession&&) noexcept;
  ModelSession& operator=(ModelSession&&) noexcept;
  ~ModelSession();

  /// Scratch of a size in bytes. It has no memory here: each prepared slot gets its own, zeroed, of the extent that its
  /// commands use. Errors: `invalid` for 0 bytes.
  [[nodiscard]] Region allocate(std::uint64_t bytes, AllocationOptions options = {});
  /// Scratch for one tensor. Errors: `invalid` for an empty tensor.
  [[nodiscard]] TensorRegion allocate(const TensorDesc& desc, AllocationOptions options = {});
  template <Element T>
  [[nodiscard]] TypedRegion<T> allocate(Shape shape, AllocationOptions options = {}) {
    TensorDesc desc(DTypeOf<T>::value, std::move(shape));
    return {allocate(desc, std::move(options)), desc};
  }

  /// Device memory with these bytes, immutable from `freeze` on and shared by all that uses the model. The bytes are
  /// copied before it returns. Label and descriptor come from the tensor. Errors: `invalid` for an empty tensor or one
  /// whose bytes are not those of its descriptor; `out_of_memory`. Cost: one copy to the device and a wait for it.
  [[nodiscard]] TensorRegion weight(const HostTensor& tensor);
  /// The same, with the element type checked: `invalid` when the tensor holds another one.
  template <Element T>
  [[nodiscard]] TypedRegion<T> weight(const HostTensor& tensor) {
    require_dtype(tensor, DTypeOf<T>::value);
    const TensorRegion region = weight(tensor);
    return {region, region.desc};
  }

  /// Loads a kernel; an image that this session has loaded before is not loaded again. Errors: `invalid` when the
  /// image lacks the symbol, or the compiled layout contradicts the spec; `unsupported` when the image has no code for
  /// this device, or the spec asks for clusters. Bytes that are no image are one or the other, as the driver takes
  /// them. The host device looks at no code, and runs what the spec says is the reference.
  [[nodiscard]] KernelId load(const KernelSpec& spec);
  template <class... P>
  [[nodiscard]] Kernel<P...> load(const TypedKernelSpec<P...>& spec) {
    return Kernel<P...>(load(spec.make()));
  }

  /// Waits for the uploads and makes the model immutable. Weights move to the context as they are, without a copy;
  /// scratch remains as sizes. Consumes the session, whatever comes of it. Errors: `invalid` when the context is of
  /// another device.
  [[nodiscard]] ModelDefinition freeze(const Context& context) &&;

 private:
  struct State;
  [[nodiscard]] State& state() const;
  static void require_dtype(const HostTensor& tensor, DType dtype);
  std::unique_ptr<State> state_;
};

}  // namespace weft
