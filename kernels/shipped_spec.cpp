#include "shipped_spec.h"

#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace weft::kernels {

KernelSpec shipped_spec(ShippedKernel kernel) {
  HostKernel host{.run = std::move(kernel.reference),
                  .parameter_sizes = {},
                  .max_threads_per_block = kernel.threads,
                  .static_shared_bytes = kernel.static_shared_bytes};
  for (const Parameter& parameter : kernel.parameters) host.parameter_sizes.push_back(parameter.size);

  KernelSpec spec;
  spec.symbol = fmt::format("weft_{}_{}", kernel.label, to_string(kernel.dtype));
  spec.image = std::move(kernel.image);
  spec.label = std::move(kernel.label);
  spec.block = {kernel.threads, 1, 1};
  spec.parameters = std::move(kernel.parameters);
  spec.launch = std::move(kernel.launch);
  spec.programmatic = true;
  spec.host = std::move(host);
  return spec;
}

void refuse_dtype(std::string_view kernel, DType dtype, std::string_view dtypes) {
  throw Error(ErrorCode::invalid,
              fmt::format("There is no kernel \"{}\" for {}, but for {}.", kernel, to_string(dtype), dtypes));
}

}  // namespace weft::kernels
