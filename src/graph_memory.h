#pragma once

#include "allocation_domain.h"
#include "loaded_kernel.h"
#include <weft/budget.h>

#include <cstdint>
#include <memory>

namespace weft {

/// How many executables a pool makes, and how many nodes they have together.
struct GraphCount {
  std::uint64_t executables = 0;
  std::uint64_t nodes = 0;
};

/// What the graphs are expected to take. The first call for a domain measures its device, with graphs of `kernel` that
/// never run; some 50 ms on a GPU. Errors: what the device says; `invalid` beyond 2^64 bytes.
[[nodiscard]] std::uint64_t estimate_graphs(AllocationDomain& domain, const LoadedKernel& kernel,
                                            const GraphCount& count);
/// The same without measuring: by what was measured before, else the least that graphs take. Errors: `device_lost` once
/// the process forked or exits; `invalid` beyond 2^64 bytes.
[[nodiscard]] std::uint64_t estimate_graphs(AllocationDomain& domain, const GraphCount& count);

/// The memory of a pool's graphs: counted and charged by an estimate before they are made, and by what the device says
/// of its memory once they are. Both last as long as this object, which must not go before the graphs have.
class GraphMemory {
 public:
  /// `charge` is of the estimate, or nothing where there is no budget.
  GraphMemory(std::shared_ptr<AllocationDomain> domain, const GraphCount& count, std::uint64_t estimate,
              MemoryReservation charge) noexcept;
  GraphMemory(const GraphMemory&) = delete;
  GraphMemory& operator=(const GraphMemory&) = delete;
  ~GraphMemory();

  /// Right before the graphs are made. Errors: what the device says.
  void begin();
  /// Once they are. A device tells of all of its memory at once and takes it in blocks, so that a measurement counts
  /// only where no other pool's graphs were made in between, less a block, and within twice the estimate; else the
  /// estimate stands. It stands, too, where less was measured: CUDA keeps the memory of graphs that are gone (H200,
  /// driver 580: all of 60 MiB) and makes new ones in it, which then seem to take nothing. What was measured beyond the
  /// estimate is charged where the budget has room for it. Errors: what the device says.
  void settle();

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

 private:
  std::shared_ptr<AllocationDomain> domain_;
  GraphCount count_;
  MemoryReservation charge_;
  MemoryCharge counted_;
  std::uint64_t bytes_;
  std::uint64_t before_ = 0;       // Bytes in use when the measurement began.
  std::uint64_t measurement_ = 0;  // Its number; 0 when it is over.
};

}  // namespace weft
