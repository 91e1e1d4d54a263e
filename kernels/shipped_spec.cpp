#include "shipped_spec.h"

#include <utility>

namespace weft::kernels {

KernelSpec shipped_spec(ShippedKernel kernel) {
  HostKernel host{.run = std::move(kernel.reference),
                  .parameter_sizes = {},
                  .max_threads_per_block = kernel.threads,
                  .static_shared_bytes = kernel.static_shared_bytes};
  for (const Parameter& parameter : kernel.parameters) host.parameter_sizes.push_back(parameter.size);

  KernelSpec spec;
  spec.symbol = "weft_" + kernel.label + "_f32";
  spec.image = std::move(kernel.image);
  spec.label = std::move(kernel.label);
  spec.block = {kernel.threads, 1, 1};
  spec.parameters = std::move(kernel.parameters);
  spec.launch = std::move(kernel.launch);
  spec.host = std::move(host);
  return spec;
}

}  // namespace weft::kernels
