#pragma once

#include "call_recorder.h"
#include "context_state.h"
#include "counters.h"
#include "device_memory.h"
#include "graph_builder.h"
#include "lane.h"
#include "late_arguments.h"
#include "pinned_buffer.h"
#include "pool_charge.h"
#include "slot_plan.h"
#include "submission.h"
#include "tracked_memory.h"
#include <weft/completion.h>
#include <weft/device_tensor.h>
#include <weft/plan/arena.h>
#include <weft/request_form.h>
#include <weft/statistics.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft {

class SlotPool;

/// A slot's part of pinned memory that the slots of a pool share.
struct PinnedPart {
  std::shared_ptr<const PinnedBuffer> page;  ///< Null where the slots need none.
  std::uint64_t offset = 0;

  [[nodiscard]] std::byte* host() const noexcept { return page->host() + offset; }
  [[nodiscard]] DeviceAddress device() const noexcept { return page->device() + offset; }
};

/// How a slot is launched.
struct SlotLaunch {
  std::size_t form = 0;
  std::span<const DeviceTensor> inputs;   ///< Of a device form: the tensors to copy in.
  std::span<const DeviceTensor> outputs;  ///< The same: those to copy out to, or none.
  std::span<const Completion> after;      ///< What the run follows besides.
  const std::shared_ptr<SlotPool>& pool;  ///< The slot's, of which a run that waits for the host keeps a lease.
};

/// One bounded request in flight: a lane, private memory, and an executable for each request form.
///
/// `try_reserve`, `share` and `release` are thread-safe; everything between them belongs to who reserved the slot.
class Slot {
 public:
  /// `model` and `index`, its place in its pool, name it. `pinned` has plan->pinned.reserved bytes. `word` has
  /// kWordBytes, apart: who asks for a completion keeps its page, and no more. Work may still be queued on the slot's
  /// stream afterwards: see `settle`.
  Slot(ContextState& context, std::shared_ptr<const SlotPlan> plan, std::uint64_t model, std::uint32_t index,
       PinnedPart pinned, PinnedPart word, const PrepareOptions& options, PoolCharge& charge);
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  /// Does not wait: memory is freed behind the last run, and the context keeps what that run uses until then.
  ~Slot();

  /// Records the calls of its plan at the slot's addresses. Before its executables are made. Errors: those of
  /// CallRecorder.
  void record_calls(CallRecorder& recorder);
  /// The nodes of its calls, in order.
  [[nodiscard]] std::span<const UniqueGraph> calls() const noexcept { return *calls_; }
  /// Gives the slot the executable of its next form; `graph` is what it was stamped from.
  void add_executable(UniqueExecutable executable, std::shared_ptr<const GraphTemplate> graph);
  /// Waits until the slot is ready for its first run.
  void settle();

  /// Reserves the slot if no lease of it is left, it has drained, and so have other runs that use its memory.
  [[nodiscard]] bool try_reserve() noexcept;
  /// One more lease of a reserved slot.
  void share() noexcept { leases_.fetch_add(1, std::memory_order_relaxed); }
  /// True when it was the last lease.
  bool release() noexcept { return leases_.fetch_sub(1, std::memory_order_release) == 1; }
  [[nodiscard]] bool is_idle() const noexcept { return leases_.load(std::memory_order_acquire) == 0 && has_drained(); }

  // What a request brings late: slot_late.cpp. For who reserved the slot, until its launch.
  /// Errors: those of ModelSlot::set.
  void set_late(LateScalarId scalar, std::span<const std::byte> value);
  /// Errors: those of ModelSlot::bind.
  void bind_late(const Region& region, const DeviceTensor& tensor);
  /// A request that is not launched takes along what it brought.
  void forget_late() noexcept;

  /// Launches a run, or sees to its launch once the host has done what it waits for. Errors: `invalid` for tensors that
  /// are not those of the plan, or that memory is shared with in a way that has no order, and for what is to be brought
  /// late and is not; `failed` or `cancelled` when what it follows is; `busy` while the host maps memory that the run
  /// uses; what the device says. Then nothing has been launched.
  [[nodiscard]] Completion launch(const SlotLaunch& launch);

  [[nodiscard]] const SlotPlan& plan() const noexcept { return *plan_; }
  [[nodiscard]] const std::shared_ptr<Lane>& lane() const noexcept { return lane_; }
  [[nodiscard]] std::span<std::byte> host_bytes(const SlotTensor& tensor) const noexcept;
  /// The memory that an output stands in. It lives as long as the slot. For plans with device outputs, or some that the
  /// host writes.
  [[nodiscard]] TrackedMemory& output_memory(std::size_t output) const noexcept { return *output_memory_[output]; }
  [[nodiscard]] bool has_output_memory() const noexcept { return !output_memory_.empty(); }
  [[nodiscard]] const GraphTemplate& graph(std::size_t form) const noexcept { return *graphs_[form]; }
  [[nodiscard]] const std::vector<DeviceAddress>& addresses() const noexcept { return addresses_; }

  /// A graph of a form that is the caller's: it works on the slot's memory and counts its completions aside. It copies
  /// no device inputs in, nor outputs into tensors of others. For who reserved the slot. Errors: those of DeviceMemory;
  /// what the device says.
  [[nodiscard]] UniqueGraph make_graph(std::size_t form);
  /// Where a run of the form finds an input, or leaves an output.
  [[nodiscard]] void* place_of(const SlotTensor& tensor, Side side) const noexcept;

  void check_canaries() const;

  /// Of this slot alone. Thread-safe.
  [[nodiscard]] SlotStatistics statistics() const noexcept;

 private:
  [[nodiscard]] bool has_drained() const noexcept;
  /// A submission that nobody else looks at: the last one's, where that is so.
  [[nodiscard]] const SubmissionPtr& renew_submission();
  /// Its memory in the host's view; for pinned allocations.
  [[nodiscard]] std::byte* host_address(std::uint32_t allocation) const noexcept {
    return pinned_.host() + plan_->pinned.offsets[allocation];
  }
  [[nodiscard]] DeviceAddress allocate(PoolCharge& charge, const std::string& what, std::uint64_t bytes,
                                       std::uint64_t canary);
  void place(PoolCharge& charge, bool separate_allocations);
  void expose_outputs();
  void forget_tables();
  void write_table(std::uint32_t table, const std::vector<SlotTensor>& tensors, bool into_slot);
  [[nodiscard]] Completion start(const SlotLaunch& launch);
  void count_copies(const RequestForm& form) noexcept;
  [[nodiscard]] LateArguments& require_late() const;
  /// Refuses an address for a late region.
  void require_late_place(std::size_t region, DeviceAddress address) const;
  /// Enters what the run does to the memory that it is brought.
  void use_late();
  /// Brings a form's executable up to what the request brought.
  void patch_late(std::size_t form);
  [[nodiscard]] std::vector<std::shared_ptr<TrackedMemory>> late_memory() const;
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
  std::unique_ptr<LateArguments> late_;                  // Null where requests bring nothing late.
  std::vector<TrackedUse> uses_;                         // Of the run that is being launched; room for the most.
  std::size_t fixed_uses_ = 0;                           // Of those, all but its inputs and outputs.
  std::vector<Completion> producers_;                // Of the tensors that it is given, and what it follows besides.
  std::shared_ptr<std::vector<UniqueGraph>> calls_;  // Kept until the last run has drained.
  DeviceMemory aside_;                               // What graphs of others count in; none before the first.
  SubmissionPtr submission_;                         // The last run's.
  std::uint32_t index_;
  std::uint64_t staged_input_bytes_ = 0;  // That a run copies from staging, in a host form; the next to it.
  std::uint64_t staged_output_bytes_ = 0;
  OwnedCounter up_bytes_;  // Written by who reserved the slot, as the next two.
  OwnedCounter device_bytes_;
  OwnedCounter down_bytes_;
  std::atomic<std::uint32_t> leases_{0};
};

}  // namespace weft
