#pragma once

#include "acquire_queue.h"
#include "context_state.h"
#include "counters.h"
#include "graph_memory.h"
#include "slot.h"
#include "slot_plan.h"
#include <weft/deadline.h>
#include <weft/prepared.h>
#include <weft/region.h>
#include <weft/request_form.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace weft {

/// What is behind a PreparedModel, its slots and its inferences. Immutable but for its slots.
class SlotPool final : public SlotSource {
 public:
  /// Makes a slot of each plan. Slots whose plans have the shape of the first one are stamped from templates, by
  /// several threads where there is enough to do. The regions are those of the fragment's inputs and outputs; none for
  /// a pool that tensors were recorded for.
  SlotPool(const Context& context, const PrepareOptions& options, std::vector<std::shared_ptr<const SlotPlan>> plans,
           std::vector<Region> input_regions, std::vector<Region> output_regions);
  SlotPool(const SlotPool&) = delete;
  SlotPool& operator=(const SlotPool&) = delete;
  ~SlotPool();

  [[nodiscard]] const Context& context() const noexcept { return context_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(slots_.size()); }
  [[nodiscard]] Slot& slot(std::uint32_t index) const noexcept { return *slots_[index]; }
  [[nodiscard]] const PrepareOptions& options() const noexcept { return options_; }
  /// What its slots take, graphs included.
  [[nodiscard]] std::uint64_t memory_bytes() const noexcept { return memory_bytes_; }
  /// Slots that were built alone since their plans have another shape.
  [[nodiscard]] const std::vector<std::uint32_t>& odd_slots() const noexcept { return odd_slots_; }

  /// Index of a slot reserved for the caller; none while others wait for one. Errors: `device_lost`; `failed` when no
  /// slot is healthy.
  [[nodiscard]] std::optional<std::uint32_t> try_reserve();
  /// The same, behind those who wait. None when the deadline passed.
  [[nodiscard]] std::optional<std::uint32_t> reserve(Deadline deadline);
  /// For AcquireQueue: no matter who waits.
  [[nodiscard]] std::optional<std::uint32_t> find_free_slot() noexcept;
  /// Gives a lease back, and the slot to who waits for one.
  void release(std::uint32_t index) noexcept {
    if (slots_[index]->release() && queue_.has_waiters()) queue_.serve();
  }
  [[nodiscard]] AcquireQueue& queue() noexcept { return queue_; }
  /// For who comes back without a slot.
  void count_empty_acquire() noexcept { empty_acquires_.add(1); }
  [[nodiscard]] SlotStatistics statistics() const noexcept override;
  void wake_watcher() const noexcept { ContextAccess::state(context_)->watcher().wake(); }
  /// Asks the device about the runs that a wait for a slot waits for; one that has hung makes its slot unhealthy.
  /// Errors: those of Lane::require_progress, and `failed` when no slot is healthy.
  void require_progress() const;
  /// As `try_reserve` refuses; asks no device.
  void require_usable() const;

  /// Index of the first form that fits. Errors: `invalid` when the pool is not prepared for it.
  [[nodiscard]] std::size_t find_form(Side inputs, std::optional<Side> outputs) const;
  [[nodiscard]] std::size_t input_index(const Region& region) const;
  [[nodiscard]] std::size_t output_index(const Region& region) const;

 private:
  void log_prepared() const noexcept;

  Context context_;
  PrepareOptions options_;
  std::vector<Region> input_regions_;
  std::vector<Region> output_regions_;
  std::shared_ptr<GraphMemory> graphs_;  // Goes after the slots' executables.
  std::uint64_t memory_bytes_ = 0;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::uint32_t> odd_slots_;
  AcquireQueue queue_{*this};
  SharedCounter empty_acquires_;
  std::atomic<std::uint32_t> next_{0};  // Where the next search begins, so that threads do not all try slot 0 first.
};

/// A counted lease of a slot, for what a request hands out beside itself. Keeps the pool alive. Releases it when
/// destroyed.
class SlotLease {
 public:
  /// Of a slot that the caller holds a lease of.
  SlotLease(std::shared_ptr<SlotPool> pool, std::uint32_t slot) noexcept : pool_(std::move(pool)), slot_(slot) {
    pool_->slot(slot_).share();
  }
  SlotLease(const SlotLease&) = delete;
  SlotLease& operator=(const SlotLease&) = delete;
  ~SlotLease() { pool_->release(slot_); }

 private:
  std::shared_ptr<SlotPool> pool_;
  std::uint32_t slot_;
};

}  // namespace weft
