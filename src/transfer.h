#pragma once

#include "counters.h"
#include "device/device_api.h"
#include "device/handles.h"
#include "device_memory.h"
#include "lane.h"
#include "sequencer.h"
#include "staging.h"
#include "tracked_memory.h"
#include <weft/completion.h>
#include <weft/statistics.h>

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
  static constexpr std::size_t kMaxLanes = 4;  // And the fresh one, and those for work outside weft.
  /// Beyond so many pieces of work outside weft in flight, the next shares a lane with an earlier one, in turn: it is
  /// told to be done, and what follows it runs, only once that is done too. Where the earlier one itself waits on the
  /// host for the later, neither ever is.
  static constexpr std::size_t kMaxForeignLanes = 16;
  using Step = std::variant<FillNode, CopyNode>;

  /// `context` outlives this object and may still be under construction.
  explicit Transfers(ContextState& context);
  Transfers(const Transfers&) = delete;
  Transfers& operator=(const Transfers&) = delete;
  /// Waits for its lanes.
  ~Transfers();
  /// Keeps the lanes and the staging for good, which may wait for what never ends.
  void abandon() noexcept;

  /// The lane for a transfer: one that has drained, a new one while there are few, else the next in turn. It lives as
  /// long as this object; memory of the transfer's own is allocated and freed on its stream.
  [[nodiscard]] const TransferLane& lane();
  /// The lane for work on memory that no submission knows yet. It lives as long as this object.
  [[nodiscard]] const TransferLane& fresh_lane();

  /// Copies on the fresh lane from pageable memory, which may go when this returns, to memory of that lane. A part may
  /// be queued after an error.
  void stage(DeviceAddress destination, std::span<const std::byte> source);

  /// Runs `steps` on the lane behind `producers` and all in flight that conflicts with `uses`, the steps' ranges.
  /// Without steps the run only tells when that is done. Returns at once. `owners` keep the memory of the uses until
  /// the launch, where that waits for the host. Errors: those of Sequencer::submit; what the device says. After an
  /// error nothing is queued any more.
  [[nodiscard]] Completion submit(const TransferLane& lane, const SubmissionOrder& order, std::span<const Step> steps,
                                  std::span<const std::shared_ptr<TrackedMemory>> owners = {});

  /// Enters work that was queued outside weft and stands behind `event`; see Sequencer::enter_foreign. Done when it is.
  /// On a lane that no copy takes: nobody knows how long that work takes. Errors: what the device says.
  [[nodiscard]] Completion fence(EventHandle event, std::span<const TrackedUse> uses = {},
                                 std::uint64_t reservation = 0);

  /// Counts copies by where the memory of their uses stands.
  [[nodiscard]] TransferStatistics statistics();

  /// When `producer` is done and so is all in flight that writes these bytes of `memory`. Errors: those of `submit`.
  [[nodiscard]] Completion join(const std::shared_ptr<TrackedMemory>& memory, std::uint64_t begin, std::uint64_t bytes,
                                const Completion& producer = {});

 private:
  using Lanes = std::vector<std::unique_ptr<TransferLane>>;

  /// One that has drained, a new one while there are fewer than `most`, else the next in turn.
  [[nodiscard]] const TransferLane& pick(Lanes& lanes, std::size_t most, const char* name);
  /// With lanes_mutex_ held.
  [[nodiscard]] std::unique_ptr<TransferLane> make_lane(const char* name);
  /// Puts one run on the lane.
  void queue(const TransferLane& lane, std::span<const Step> steps) const;

  void count(std::span<const TrackedUse> uses, std::span<const Step> steps) noexcept;

  ContextState& context_;
  SharedCounter submitted_;
  SharedCounter up_bytes_;
  SharedCounter device_bytes_;
  SharedCounter down_bytes_;
  std::mutex lanes_mutex_;
  std::shared_ptr<AllocationDomain> overhead_;  // Guarded by lanes_mutex_: what the lanes themselves take.
  std::unique_ptr<TransferLane> fresh_;         // Guarded by lanes_mutex_; set once.
  Lanes lanes_;                                 // Guarded by lanes_mutex_, as the next.
  Lanes foreign_lanes_;
  std::size_t next_ = 0;  // Guarded by lanes_mutex_.
  std::mutex staging_mutex_;
  std::shared_ptr<StagedCopy> staging_;  // Guarded by staging_mutex_.
};

}  // namespace weft
