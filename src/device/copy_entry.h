#pragma once

#include <cstdint>

// Included by device code as well: nothing here may need more than C++20 of the device's compiler.

namespace weft::own {

/// One range of weft_copy_table. An entry with a null address or without bytes is skipped.
///
/// The device reads entries over the bus, and an aligned entry is one read.
struct alignas(32) CopyEntry {
  std::uint64_t destination = 0;  ///< A DeviceAddress.
  std::uint64_t source = 0;       ///< A DeviceAddress.
  std::uint64_t bytes = 0;
};

}  // namespace weft::own
