#pragma once

#include <cstdint>

namespace weft::test {

/// Allocations of one thread by operator new, which this program replaces.
struct AllocationCount {
  bool in_device_call = false;  ///< Set by who calls the device.
  std::uint64_t inside = 0;     ///< Allocations while it was set.
  std::uint64_t outside = 0;
};

/// Blocks of the whole process that are allocated so and not freed.
[[nodiscard]] std::int64_t live_blocks() noexcept;

extern thread_local AllocationCount allocation_count;

}  // namespace weft::test
