#pragma once

#include <weft/export.h>

#include <cstdint>
#include <string>

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
  MemoryCounters requested = {};
  MemoryCounters reserved = {};  ///< What weft took from the device for that: buffers, and arenas with their padding.
  /// Pinned host memory: staging of inputs, outputs and copies, completion words, shared allocations.
  MemoryCounters staging = {};
  MemoryCounters graphs = {};  ///< What executables take, as measured when they were made; an allocation each.
  friend bool operator==(const MemoryStatistics&, const MemoryStatistics&) = default;
};

/// Runs of slots so far, by what became of them. What is submitted and none of the others is in flight.
struct RunCounters {
  std::uint64_t submitted = 0;  ///< Accepted by a submit; a refused one counts nowhere.
  std::uint64_t completed = 0;  ///< Its results are readable.
  std::uint64_t failed = 0;     ///< A producer failed, so that it never ran, or the device did.
  std::uint64_t cancelled = 0;
  RunCounters& operator+=(const RunCounters& other) noexcept;
  friend bool operator==(const RunCounters&, const RunCounters&) = default;
};

/// Bytes that were copied so far, by the side that they came from and the one that they went to.
struct CopyCounters {
  std::uint64_t up_bytes = 0;      ///< Host to device.
  std::uint64_t device_bytes = 0;  ///< Within the device.
  std::uint64_t down_bytes = 0;    ///< Device to host.
  CopyCounters& operator+=(const CopyCounters& other) noexcept;
  friend bool operator==(const CopyCounters&, const CopyCounters&) = default;
};

/// The slots of a prepared model, or of all of a context.
struct SlotStatistics {
  // Now:
  std::uint64_t slots = 0;
  std::uint64_t executables = 0;  ///< Graphs that can be launched: one a slot and request form.
  std::uint64_t leased = 0;       ///< Held by a ModelSlot, an Inference, or what was made of one.
  std::uint64_t in_flight = 0;    ///< Launched and not finished.
  std::uint64_t unhealthy = 0;    ///< Never handed out again.
  // So far:
  RunCounters runs = {};
  CopyCounters copies = {};          ///< Of inputs and outputs; what a model's own commands copy does not count.
  std::uint64_t empty_acquires = 0;  ///< That found no free slot, or none before their deadline.
  std::uint64_t patched_nodes = 0;   ///< Nodes that were set for requests whose late arguments had changed.
  SlotStatistics& operator+=(const SlotStatistics& other) noexcept;
  friend bool operator==(const SlotStatistics&, const SlotStatistics&) = default;
};

/// Copies outside graphs: of buffers, tensors in memory and readbacks.
struct TransferStatistics {
  std::uint64_t lanes = 0;      ///< Streams that they go over, now.
  std::uint64_t submitted = 0;  ///< So far, as the next.
  CopyCounters copies = {};
  friend bool operator==(const TransferStatistics&, const TransferStatistics&) = default;
};

/// All that a context counts.
///
/// A snapshot: each number is right for a moment of the call, and those of work that goes on meanwhile may be of
/// different moments. Once nothing is in flight they agree.
struct ContextStatistics {
  MemoryStatistics memory = {};
  std::uint64_t models = 0;   ///< Prepared models, now.
  SlotStatistics slots = {};  ///< Of these models; runs in flight, and what counts so far, also of those that are gone.
  TransferStatistics transfers = {};
  std::uint64_t callback_failures = 0;  ///< Callbacks that threw so far; each is logged as well.
  friend bool operator==(const ContextStatistics&, const ContextStatistics&) = default;
};

/// One object of JSON, for scraping: a member for each of the structure, by its name.
[[nodiscard]] WEFT_API std::string to_json(const ContextStatistics& statistics);
[[nodiscard]] WEFT_API std::string to_json(const SlotStatistics& statistics);

/// Whether a context can serve requests.
struct Readiness {
  bool is_ready = false;
  std::string reason;  ///< Why not, as a sentence; empty when it can.
  [[nodiscard]] explicit operator bool() const noexcept { return is_ready; }
};

}  // namespace weft
