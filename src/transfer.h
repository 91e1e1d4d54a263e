#pragma once

#include "device/device_api.h"
#include "device/handles.h"
#include "device_memory.h"
#include "lane.h"
#include "sequencer.h"
#include "staging.h"
#include "tracked_memory.h"
#include <weft/completion.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <variant>
#include <vector>

namespace weft {

class ContextState;

/// A lane for copies outside graphs, and the graph of one node that completes its runs.
struct TransferLane {
  std::shared_ptr<Lane> lane;
  DeviceMemory counter;
  UniqueExecutable complete;

  [[nodiscard]] StreamHandle stream() const noexcept { return lane->stream(); }
};

/// Copies and fills of memory outside graphs, over a few lanes that all of a context's memory shares. Thread-safe.
///
/// Memory that no submission knows yet is written on a lane of its own, which follows no other: neither uploads nor
/// their staging ever stand behind unrelated work.
class Transfers {
 public:
  static constexpr std::size_t kMaxLanes = 4;  // And the fresh one.
  using Step = std::variant<FillNode, CopyNode>;

  /// `context` outlives this object and may still be under construction.
  explicit Transfers(ContextState& context);
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  /// Waits for its lanes.
  ~Transfers();

  /// The lane for a transfer: one that has drained, a new one while there are few, else the next in turn. It lives as
  /// long as this object; memory of the transfer's own is allocated and freed on its stream.
  [[nodiscard]] const TransferLane& lane();
  /// The lane for work on memory that no submission knows yet. It lives as long as this object.
  [[nodiscard]] const TransferLane& fresh_lane();

  /// Copies on the fresh lane from pageable memory, which may go when this returns, to memory of that lane. A part may
  /// be queued after an error.
  void stage(DeviceAddress destination, std::span<const std::byte> source);

  /// Runs `steps` on the lane behind `producers` and all in flight that conflicts with `uses`, the steps' ranges.
  /// Without steps the run only tells when that is done. Returns at once. Errors: those of Sequencer::submit; what the
  /// device says. After an error nothing is queued any more.
  [[nodiscard]] Completion submit(const TransferLane& lane, std::span<const TrackedUse> uses,
                                  std::span<const Step> steps, std::span<const Completion> producers = {});

  /// When `producer` is done and so is all in flight that writes these bytes of `memory`. Errors: those of `submit`.
  [[nodiscard]] Completion join(TrackedMemory& memory, std::uint64_t begin, std::uint64_t bytes,
                                const Completion& producer = {});

 private:
  /// With lanes_mutex_ held.
  [[nodiscard]] std::unique_ptr<TransferLane> make_lane();
  /// Puts one run on the lane.
  void queue(const TransferLane& lane, std::span<const Step> steps) const;

  ContextState& context_;
  std::mutex lanes_mutex_;
  std::shared_ptr<AllocationDomain> overhead_;        // Guarded by lanes_mutex_: what the lanes themselves take.
  std::unique_ptr<TransferLane> fresh_;               // Guarded by lanes_mutex_; set once.
  std::vector<std::unique_ptr<TransferLane>> lanes_;  // Guarded by lanes_mutex_.
  std::size_t next_ = 0;                              // Guarded by lanes_mutex_.
  std::mutex staging_mutex_;
  StagedCopy staging_;  // Guarded by staging_mutex_.
};

}  // namespace weft
