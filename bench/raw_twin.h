#pragma once

#include "digits/digits.h"
#include "runner.h"

#include <cstdint>
#include <memory>

// The same work as hand-written CUDA: graphs built node by node through the CUDA runtime and pointed at one slot after
// another, copies by kernels, the answer's flag stored by the copy-out kernel. It launches the same compiled model
// kernels.

namespace weft::bench {

/// Makes its slots on `threads` threads.
[[nodiscard]] std::unique_ptr<Runner> raw_line(std::uint32_t gpu, std::uint32_t nodes, std::uint32_t slots,
                                               std::uint32_t threads = 1);
[[nodiscard]] std::unique_ptr<Runner> raw_digits(std::uint32_t gpu, const digits::Layers& layers, std::uint32_t batch,
                                                 std::uint32_t slots);

}  // namespace weft::bench
