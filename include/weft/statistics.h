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
  /// What was asked for: weights, buffers, and each slot's allocations by their used extents.
  MemoryCounters requested;
  MemoryCounters reserved;  ///< What weft took from the device for that: buffers, and arenas with their padding.
  /// Pinned host memory: staging of inputs, outputs and copies, completion words, shared allocations.
  MemoryCounters staging;
  friend bool operator==(const MemoryStatistics&, const MemoryStatistics&) = default;
};

}  // namespace weft
