#pragma once

#include "context_state.h"
#include "device_memory.h"
#include "graph_builder.h"
#include "lane.h"
#include "pinned_buffer.h"
#include "slot_plan.h"
#include "tracked_memory.h"
#include <weft/completion.h>
#include <weft/device_tensor.h>
#include <weft/plan/arena.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft {

/// A slot's part of pinned memory that the slots of a pool share.
struct PinnedPart {
  std::shared_ptr<const PinnedBuffer> page;  ///< Null where the slots need none.
  std::uint64_t offset = 0;

  [[nodiscard]] std::byte* host() const noexcept { return page->host() + offset; }
  [[nodiscard]] DeviceAddress device() const noexcept { return page->device() + offset; }
};

/// One bounded request in flight: a lane, private memory, and an executable for each request form.
///
/// `try_reserve`, `share` and `release` are thread-safe; everything between them belongs to who reserved the slot.
class Slot {
 public:
  /// `pinned` has plan->pinned.reserved bytes. `word` has kWordBytes, apart: who asks for a completion keeps its page,
  /// and no more. Work may still be queued on the slot's stream afterwards: see `settle`.
  Slot(ContextState& context, std::shared_ptr<const SlotPlan> plan, PinnedPart pinned, PinnedPart word,
       const PrepareOptions& options);
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  /// Does not wait: memory is freed behind the last run, and the context keeps what that run uses until then.
  ~Slot();

  /// Gives the slot the executable of its next form; `graph` is what it was stamped from.
  void add_executable(UniqueExecutable executable, std::shared_ptr<const GraphTemplate> graph);
  /// Waits until the slot is ready for its first run.
  void settle();

  /// Reserves the slot if no lease of it is left, it has drained, and so have other runs that use its memory.
  [[nodiscard]] bool try_reserve() noexcept;
  /// One more lease of a reserved slot.
  void share() noexcept { leases_.fetch_add(1, std::memory_order_relaxed); }
  void release() noexcept { leases_.fetch_sub(1, std::memory_order_release); }
  [[nodiscard]] bool is_idle() const noexcept { return leases_.load(std::memory_order_acquire) == 0 && has_drained(); }

  /// Launches the form with this index and returns the number of the run. For a device form, `inputs` are the tensors
  /// to copy in, and `outputs` those to copy out to, or none. Errors: `invalid` for tensors that are not those of the
  /// plan, or that memory is shared with in a way that has no order; `busy` while the host maps memory that the run
  /// uses; what the device says. Then nothing has been launched.
  [[nodiscard]] std::uint64_t launch(std::size_t form, std::span<const DeviceTensor> inputs,
                                     std::span<const DeviceTensor> outputs);

  [[nodiscard]] const SlotPlan& plan() const noexcept { return *plan_; }
  [[nodiscard]] const std::shared_ptr<Lane>& lane() const noexcept { return lane_; }
  [[nodiscard]] std::span<std::byte> host_bytes(const SlotTensor& tensor) const noexcept;
  /// The memory that an output stands in. It lives as long as the slot. For plans with device outputs.
  [[nodiscard]] TrackedMemory& output_memory(std::size_t output) const noexcept { return *output_memory_[output]; }
  [[nodiscard]] const GraphTemplate& graph(std::size_t form) const noexcept { return *graphs_[form]; }
  [[nodiscard]] const std::vector<DeviceAddress>& addresses() const noexcept { return addresses_; }

  void check_canaries() const;

 private:
  [[nodiscard]] bool has_drained() const noexcept;
  /// Its memory in the host's view; for pinned allocations.
  [[nodiscard]] std::byte* host_address(std::uint32_t allocation) const noexcept {
    return pinned_.host() + plan_->pinned.offsets[allocation];
  }
  [[nodiscard]] DeviceAddress allocate(const std::string& what, std::uint64_t bytes, std::uint64_t canary);
  void place(bool separate_allocations);
  void expose_outputs();
  void write_table(std::uint32_t table, const std::vector<SlotTensor>& tensors, bool into_slot);
  void use_inputs(std::span<const DeviceTensor> inputs);
  void use_outputs(std::span<const DeviceTensor> outputs);
  /// Enters a use of the caller's memory by its range, and returns its address. Refuses one that conflicts with what
  /// the run does besides, or with an entered use from position `peers` on.
  DeviceAddress use(const DeviceTensor& tensor, const SlotTensor& place, Access access, std::size_t peers);

  ContextState& context_;  // Not owned; the pool keeps it alive.
  std::shared_ptr<const SlotPlan> plan_;
  PinnedPart pinned_;
  PinnedPart word_;
  std::shared_ptr<Lane> lane_;
  Retirement retirement_;  // Made with the slot, so that giving it up cannot fail.
  std::shared_ptr<std::vector<DeviceMemory>>
      memory_;                            // The arena, or one a region. Charged until the last run has drained.
  std::vector<DeviceAddress> addresses_;  // Of the plan's allocations.
  MemoryCharge requested_;
  std::vector<UniqueExecutable> executables_;  // By form, as the next.
  std::vector<std::shared_ptr<const GraphTemplate>> graphs_;
  std::vector<std::unique_ptr<TrackedMemory>> exposed_;  // Memory of the slot that outputs stand in.
  std::vector<TrackedMemory*> output_memory_;            // By output: one of those, or memory outside the slot.
  std::vector<TrackedUse> uses_;                         // Of the run that is being launched; room for the most.
  std::vector<Completion> producers_;                    // Of the tensors that it is given; the same.
  std::atomic<std::uint32_t> leases_{0};
};

}  // namespace weft
