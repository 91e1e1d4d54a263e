#pragma once

#include <weft/captured.h>
#include <weft/command.h>
#include <weft/completion.h>
#include <weft/contract.h>
#include <weft/deadline.h>
#include <weft/device_tensor.h>
#include <weft/export.h>
#include <weft/kernel.h>
#include <weft/prepared.h>
#include <weft/tensor.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

// For code that is compiled with CUDA: kernels of the program itself, CUDA's own 2-byte types, and other people's
// streams, events and graphs. Needs the CUDA Toolkit's headers, and a CUDA runtime in the program or library that
// includes it.

namespace weft {

/// `__half` is an element type and a scalar, as f16 is.
template <>
struct DTypeOf<__half> {
  static constexpr DType value = DType::f16;
};
/// `__nv_bfloat16` is an element type and a scalar, as bf16 is.
template <>
struct DTypeOf<__nv_bfloat16> {
  static constexpr DType value = DType::bf16;
};

namespace detail {

/// A parameter as its C++ type tells it.
struct DeclaredParameter {
  ParameterKind kind = ParameterKind::scalar;
  std::uint32_t size = 0;
  bool integral = false;  ///< A scalar that may be an index.
  bool points_to_const = false;
  std::uint32_t element_size = 1;
  std::uint32_t element_alignment = 1;
};

template <class P>
[[nodiscard]] constexpr DeclaredParameter declared_parameter() {
  if constexpr (std::is_pointer_v<P>) {
    using Pointee = std::remove_pointer_t<P>;
    static_assert(!std::is_function_v<Pointee>, "A kernel of weft has no pointers to functions.");
    DeclaredParameter parameter{.kind = ParameterKind::binding, .size = sizeof(P)};
    parameter.points_to_const = std::is_const_v<Pointee>;
    if constexpr (!std::is_void_v<Pointee>) {
      parameter.element_size = sizeof(Pointee);
      parameter.element_alignment = alignof(Pointee);
    }
    return parameter;
  } else if constexpr (ScalarValue<P> || std::is_enum_v<P>) {
    return {.kind = ParameterKind::scalar, .size = sizeof(P), .integral = std::is_integral_v<P>};
  } else {
    static_assert(std::is_class_v<P> && std::is_trivially_copyable_v<P>,
                  "A kernel parameter is a pointer, a scalar or a trivially copyable struct.");
    return {.kind = ParameterKind::bytes, .size = sizeof(P)};
  }
}

/// Holds the spec's parameters against the declared ones, or makes them where the spec has none, and sets its image.
[[nodiscard]] WEFT_API KernelSpec complete_spec(KernelSpec spec, NativeKernel native,
                                                const std::vector<DeclaredParameter>& declared);

}  // namespace detail

// Hidden: what a plugin shared with the program would ask the program's CUDA runtime, which knows none of the plugin's
// kernels. By pragma, because nvcc warns of the attribute on a template's instance for a type without linkage.
#pragma GCC visibility push(hidden)

namespace detail {

inline void* resolve_kernel(const void* function, int& error) {
  cudaKernel_t kernel = nullptr;
  error = ::cudaGetKernel(&kernel, function);
  if (error == cudaSuccess) return kernel;
  static_cast<void>(::cudaGetLastError());  // Told by `error`; it must not stay behind for other code of the thread.
  return nullptr;
}

inline int last_error(bool take, const char*& text) {
  const cudaError_t error = take ? ::cudaGetLastError() : ::cudaPeekAtLastError();
  text = ::cudaGetErrorString(error);
  return error;
}

}  // namespace detail

/// A call of a library, or any code that enqueues work on a stream, as a command:
///
///     weft::captured("sum", {x.read(), sum.write()}, workspace_bytes, [=](const weft::CapturedCall& call) {
///       check(cub::DeviceReduce::Sum(call.workspace, bytes, call.get<const float*>(0), call.get<float*>(1), n,
///                                    call.stream));
///     });
///
/// On a GPU the callable runs once a slot, when a model is prepared, under a capture of that thread alone; what it
/// enqueues becomes nodes of the slot's graph. Captures and work of other threads go on undisturbed, but
/// for one that synchronizes the whole device (cudaDeviceSynchronize) at the moment of a recording, to which driver 580
/// answers that a stream is captured; the recording is then made again. See Captured for
/// what it must and must not do, and for what else can be set: the command's action is one.
///
/// An error that the callable's CUDA runtime reports is the prepare's, also where the callable drops it. One that stood
/// there from earlier stays, and hides another of its code. Work that the callable puts on a stream outside the capture
/// runs at once and is not seen, unless nothing else is enqueued. Errors, when the fragment is made: `invalid` for a
/// binding that does not say its access, and as for a dispatch's.
[[nodiscard]] inline Command captured(std::string name, std::vector<Binding> bindings, std::uint64_t workspace_bytes,
                                      std::function<void(const CapturedCall&)> enqueue,
                                      std::function<void(const CapturedCall&)> host = {}) {
  return Captured{.name = std::move(name),
                  .bindings = std::move(bindings),
                  .workspace_bytes = workspace_bytes,
                  .identity = {},
                  .enqueue = std::move(enqueue),
                  .load = {},
                  .host = std::move(host),
                  .last_error = &detail::last_error};
}

/// The spec of a `__global__` function of this program: `weft::kernel(&scale<float>, {.symbol = "scale", .block =
/// {256}})`.
///
/// The spec has a label or a symbol for messages, and no image. Where it has no parameters they are made from the
/// function's type: a pointer to const is a binding that is read, another pointer one that is read and written, a
/// struct is `bytes`, all else a scalar of its size. Where it has parameters they are kept, and must agree: in number,
/// kind and size, and none writes through a pointer to const. A size of 0, an alignment that is not said and the sizes
/// of a host reference that has none are filled in. An integer may be an index; a pointer may have any access.
///
/// Pure: asks no CUDA runtime; that is done when a CUDA device loads the kernel, and asks the runtime that the caller
/// is linked with. The function must stay loaded as long as the kernel is used. Errors: `invalid`, naming the
/// parameter.
template <class... P>
[[nodiscard]] KernelSpec kernel(void (*function)(P...), KernelSpec spec) {
  return detail::complete_spec(std::move(spec), {reinterpret_cast<const void*>(function), &detail::resolve_kernel},
                               {detail::declared_parameter<P>()...});
}

#pragma GCC visibility pop

/// Other people's streams in the same process.
///
/// A stream is of the context's GPU; a null one is the legacy default stream, and the per-thread one is called
/// cudaStreamPerThread. A stream that is being captured is refused with `invalid`, and its capture goes on; so is an
/// event that was recorded in a capture, where CUDA may end the capture for the question. An event that was never
/// recorded counts as past. Every call returns at once unless it says otherwise, and is thread-safe as far as its
/// objects are. Errors of all of them: `invalid` for objects of the host device or moved-from ones; `device_lost`; what
/// CUDA says.
namespace cuda {

/// Makes the slot's next run follow what is queued on the stream now, or what the event was last recorded behind. A
/// slot that is given back without a run keeps it for its next one.
WEFT_API void wait_for(ModelSlot& slot, cudaStream_t stream);
WEFT_API void wait_for(ModelSlot& slot, cudaEvent_t event);

/// Makes what is queued on the stream from now on follow the work, on the device. Errors: `busy` while the work waits
/// for the host and is not launched; what it came to, if it failed or was cancelled.
WEFT_API void wait_for(cudaStream_t stream, const Completion& work);

/// What is queued on the stream now, or what the event was last recorded behind, for requests to follow
/// (SubmitOptions::after) and hosts to wait for. The last handle of the context waits for it.
[[nodiscard]] WEFT_API Completion completion(const Context& context, cudaStream_t stream);
[[nodiscard]] WEFT_API Completion completion(const Context& context, cudaEvent_t event);

/// Gives up a request's lease at once, for a consumer that has queued its reads on `stream` (behind the run: see
/// wait_for) and waits for nothing: the slot is free once its run is done, and its next run follows what is queued on
/// the stream now. Where the host writes the next request over an output, in place in shared memory, the slot is free
/// once the stream has come so far. Outputs that were copied to tensors are read there in the same order. Errors, and
/// then the lease is kept: `busy` while the run waits for the host.
WEFT_API void release(Inference&& run, cudaStream_t stream);
/// The same for a tensor, which is empty afterwards and leases nothing; its copies and views keep their leases. Work
/// that conflicts with `access` to memory outside slots follows the stream.
WEFT_API void release(DeviceTensor&& tensor, cudaStream_t stream, Access access = Access::read);

/// Where a tensor is in device memory, or in host memory that the device reaches; null for an empty one. What is queued
/// there is in order with weft's work by the functions of this header alone. Errors: `invalid` for a tensor of a graph.
[[nodiscard]] WEFT_API void* address(const DeviceTensor& tensor);

/// What a callback does to a tensor.
struct Use {
  DeviceTensor tensor;
  Access access = Access::read;
};

struct ScopeOptions {
  /// What the callback's work follows, beside what produces its tensors.
  std::vector<Completion> after = {};
  /// How long to wait for producers that wait for the host.
  Deadline deadline = {};
};

/// Has `callback` queue work on `stream`, on this thread, in its place among weft's: behind the producers of the
/// tensors and all in flight on their bytes that conflicts, and before what conflicts and comes later. While it runs,
/// other work, maps and scopes that conflict are refused with `busy`, on this thread too. The completion is that of
/// what was queued, whatever else is on the stream by then.
///
/// What the callback throws passes on; what it had queued is in order nevertheless. Errors, and then the callback is
/// not called: `busy` while the host maps one of the tensors in a way that conflicts or another scope has them, or what
/// it follows still waits for the host at the deadline; `failed` or `cancelled` when that is; `invalid` for a tensor of
/// a graph or another context. When the stream is left in a state that takes no event (a capture that goes on), the
/// call throws `invalid` and the bytes stay reserved for good.
[[nodiscard]] WEFT_API Completion scoped(const Context& context, cudaStream_t stream, const std::vector<Use>& uses,
                                         const std::function<void(cudaStream_t)>& callback, ScopeOptions options = {});

/// A graph of a model's slot, and where its inputs are read and its outputs written: pinned host memory in a host form,
/// the slot's device memory in a device form.
struct ModelGraph {
  cudaGraph_t graph = nullptr;  ///< The caller's, to instantiate, launch, add as a child, and destroy.
  std::vector<void*> inputs;
  std::vector<void*> outputs;
};

/// The graph of one request form over one slot's memory, to be run without weft. Its runs count in no completion. The
/// slot stays reserved, and the model and it alive, as long as the graph runs; runs of one slot's graphs do not
/// overlap. Late scalars and regions are in it as they are set and bound on the slot now; what they are bound to must
/// live as long as the graph runs. Errors: `invalid` for a slot of another model, a form beyond the list, or a late
/// argument that a submit would miss; those of Context::allocate.
[[nodiscard]] WEFT_API ModelGraph graph(const PreparedModel& model, const ModelSlot& slot, std::size_t form = 0);

}  // namespace cuda

}  // namespace weft
