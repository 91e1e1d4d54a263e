#pragma once

#include <weft/kernel.h>
#include <weft/typed_kernel.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace weft::kernels {

/// What differs between the specs of the shipped kernels.
struct ShippedKernel {
  std::string label;  ///< "linear": the symbol is weft_linear_f32.
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

}  // namespace weft::kernels
