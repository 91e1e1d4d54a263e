#pragma once

#include "context_state.h"
#include "slot.h"
#include "slot_plan.h"
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
class SlotPool {
 public:
  /// Makes a slot of each plan. Slots whose plans have the shape of the first one are stamped from templates, by
  /// several threads where there is enough to do. The regions are those of the fragment's inputs and outputs; none for
  /// a pool that tensors were recorded for.
  SlotPool(const Context& context, const PrepareOptions& options, std::vector<std::shared_ptr<const SlotPlan>> plans,
           std::vector<Region> input_regions, std::vector<Region> output_regions);

  [[nodiscard]] const Context& context() const noexcept { return context_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(slots_.size()); }
  [[nodiscard]] Slot& slot(std::uint32_t index) const noexcept { return *slots_[index]; }
  [[nodiscard]] const PrepareOptions& options() const noexcept { return options_; }
  /// Slots that were built alone since their plans have another shape.
  [[nodiscard]] const std::vector<std::uint32_t>& odd_slots() const noexcept { return odd_slots_; }

  /// Index of a slot reserved for the caller, or size(). Errors: `device_lost`.
  [[nodiscard]] std::uint32_t try_reserve();
  /// Asks the device about the runs that a wait for a slot waits for. Errors: those of Lane::require_progress.
  void require_progress() const;

  /// Index of the first form that fits. Errors: `invalid` when the pool is not prepared for it.
  [[nodiscard]] std::size_t find_form(Side inputs, std::optional<Side> outputs) const;
  [[nodiscard]] std::size_t input_index(const Region& region) const;
  [[nodiscard]] std::size_t output_index(const Region& region) const;

 private:
  Context context_;
  PrepareOptions options_;
  std::vector<Region> input_regions_;
  std::vector<Region> output_regions_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::vector<std::uint32_t> odd_slots_;
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
  ~SlotLease() { pool_->slot(slot_).release(); }

 private:
  std::shared_ptr<SlotPool> pool_;
  std::uint32_t slot_;
};

}  // namespace weft
