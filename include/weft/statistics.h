#pragma once

#include <cstdint>

namespace weft {

/// Bytes of one kind of memory. A snapshot.
struct MemoryCounters {
  std::uint64_t live_bytes = 0;
  std::uint64_t peak_bytes = 0;   ///< Largest `live_bytes` so far.
  std::uint64_t allocations = 0;  ///< Successful allocations so far, freed ones included.
  friend bool operator==(const MemoryCounters&, const MemoryCounters&) = default;
};

/// The memory of a context. Counters move only when an allocation succeeds and when it ends.
struct MemoryStatistics {
  MemoryCounters requested;  ///< What models ask for: weights, and each slot's allocations by their used extents.
  MemoryCounters reserved;   ///< What weft took from the device for that: arenas with their padding.
  MemoryCounters staging;  ///< Pinned host memory: staging of inputs and outputs, completion words, shared allocations.
  friend bool operator==(const MemoryStatistics&, const MemoryStatistics&) = default;
};

}  // namespace weft
