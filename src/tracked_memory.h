#pragma once

#include "device/device_api.h"
#include "lane.h"
#include <weft/contract.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace weft {

class ContextState;
class Lane;
class Sequencer;

/// One run of a lane.
struct LaneRun {
  std::shared_ptr<const Lane> lane;
  std::uint64_t run = 0;
};

/// Memory that submissions of several graphs, and the host, may touch: where it is, and what is in flight on it.
///
/// Held by pointers that also keep what the bytes depend on: a buffer's allocation, or a slot with its lease. The log
/// belongs to the context's Sequencer.
class TrackedMemory {
 public:
  /// `host` is null for memory that the host cannot read. `home` outlives this object.
  TrackedMemory(ContextState& home, std::string label, DeviceAddress address, std::byte* host, std::uint64_t bytes)
      : home_(home), label_(std::move(label)), address_(address), host_(host), bytes_(bytes) {}
  TrackedMemory(const TrackedMemory&) = delete;
  TrackedMemory& operator=(const TrackedMemory&) = delete;

  [[nodiscard]] ContextState& home() const noexcept { return home_; }
  [[nodiscard]] const std::string& label() const noexcept { return label_; }
  [[nodiscard]] DeviceAddress address() const noexcept { return address_; }
  [[nodiscard]] std::byte* host() const noexcept { return host_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] Placement placement() const noexcept {
    return host_ == nullptr ? Placement::device : Placement::shared;
  }

  /// Refuses submissions that write it, from now on. For who makes it.
  void forbid_writes() noexcept { is_read_only_ = true; }

  /// Whether it is the state of a model, which marks it when it is made.
  [[nodiscard]] bool is_state() const noexcept { return is_state_; }
  void mark_state() noexcept { is_state_ = true; }

  /// The lane of the slot whose memory it is and whose runs, which are not logged, alone write it for the next request;
  /// null where there is none, or where the host writes for it too. Kept by the slot.
  [[nodiscard]] const Lane* slot_lane() const noexcept { return slot_lane_; }
  /// For the slot that makes it.
  void belong_to(const Lane& lane) noexcept { slot_lane_ = &lane; }

  /// False when no submission that entered itself here can still be in flight. Takes no lock.
  [[nodiscard]] bool may_be_in_flight() const noexcept { return has_uses_.load(std::memory_order_acquire); }

 private:
  friend class Sequencer;
  /// The bytes [begin, end) in flight, or of a submission that is to be launched once the host has done its part.
  struct Use {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    Access access = Access::read;
    /// Not owned: a lane goes once it has drained, so what is in flight on one that is gone is finished. A log that
    /// nobody looks at keeps no pool's staging.
    std::weak_ptr<const Lane> lane;
    std::uint64_t run = 0;
    std::uint64_t gate = 0;  ///< Its number among those that wait for the host; 0 once it is launched.
  };

  /// The bytes [begin, end), for work that is queued outside weft right now.
  struct Reserved {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    Access access = Access::read;
    std::uint64_t reservation = 0;
  };

  ContextState& home_;
  std::string label_;
  DeviceAddress address_;
  std::byte* host_;
  std::uint64_t bytes_;
  bool is_read_only_ = false;
  bool is_state_ = false;
  const Lane* slot_lane_ = nullptr;
  // Guarded by the Sequencer.
  std::vector<Use> uses_;
  std::vector<Reserved> reserved_;
  std::uint32_t host_readers_ = 0;
  bool host_writer_ = false;
  std::atomic<bool> has_uses_{false};
};

/// What a submission does to the bytes [begin, end) of tracked memory.
struct TrackedUse {
  TrackedMemory* memory = nullptr;  // Not owned: who submits keeps it until the run has drained.
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  Access access = Access::read;
};

}  // namespace weft
