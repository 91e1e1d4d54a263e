#pragma once

#include <weft/command.h>
#include <weft/contract.h>
#include <weft/export.h>
#include <weft/kernel.h>
#include <weft/tensor.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

// For code that is compiled with CUDA: kernels of the program itself, and CUDA's own 2-byte types. Needs the CUDA
// Toolkit's headers, and a CUDA runtime in the program or library that includes it.

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

}  // namespace detail

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

}  // namespace weft
