#pragma once

#include <weft/kernel.h>
#include <weft/tensor.h>
#include <weft/typed_kernel.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::kernels {

/// What differs between the specs of the shipped kernels.
struct ShippedKernel {
  std::string label;  ///< "linear": the symbol is weft_linear_f32.
  DType dtype = DType::f32;
  CodeImage image;
  std::uint32_t threads = 0;  ///< Of a block, and the launch bound.
  std::uint32_t static_shared_bytes = 0;
  std::vector<Parameter> parameters;
  LaunchRule launch;
  std::function<void(const HostLaunch&)> reference;
};

/// The parameter list of the signature that the public header states, so that it is written once.
template <class... P, std::size_t N>
[[nodiscard]] std::vector<Parameter> parameters_of(const TypedKernelSpec<P...>&, const char* const (&names)[N]) {
  return parameters<P...>(names);
}

[[nodiscard]] KernelSpec shipped_spec(ShippedKernel kernel);

/// `dtypes`: those that there are kernels for.
[[noreturn]] void refuse_dtype(std::string_view kernel, DType dtype, std::string_view dtypes);

/// What `make.operator()<T>()` returns for the element type that `dtype` names. Refuses, with `invalid`, another than
/// f32, f16 and bf16.
template <class Make>
[[nodiscard]] KernelSpec spec_of_dtype(std::string_view kernel, DType dtype, Make&& make) {
  switch (dtype) {
    case DType::f32:
      return make.template operator()<float>();
    case DType::f16:
      return make.template operator()<f16>();
    case DType::bf16:
      return make.template operator()<bf16>();
    default:
      refuse_dtype(kernel, dtype, "f32, f16 and bf16");
  }
}

/// The same of f16 and bf16 alone.
template <class Make>
[[nodiscard]] KernelSpec spec_of_half_dtype(std::string_view kernel, DType dtype, Make&& make) {
  switch (dtype) {
    case DType::f16:
      return make.template operator()<f16>();
    case DType::bf16:
      return make.template operator()<bf16>();
    default:
      refuse_dtype(kernel, dtype, "f16 and bf16");
  }
}

}  // namespace weft::kernels
