#pragma once

#include "machine.h"
#include <weft/context.h>

namespace weft::bench {

/// The GPU of a context, its clock limit, and the CUDA versions on both sides of the driver's interface.
[[nodiscard]] Facts describe_gpu(const Context& context);

}  // namespace weft::bench
