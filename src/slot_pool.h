#pragma once

#include "context_state.h"
#include "slot.h"
#include "slot_plan.h"
#include <weft/prepared.h>
#include <weft/region.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace weft {

/// What is behind a PreparedModel, its slots and its inferences. Immutable but for its slots.
class SlotPool {
 public:
  /// Makes a slot of each plan. The regions are those of the fragment's inputs and
  /// outputs; none for a pool that tensors were recorded for.
  SlotPool(const Context& context, const PrepareOptions& options, std::vector<std::shared_ptr<const SlotPlan>> plans,
           std::vector<Region> input_regions, std::vector<Region> output_regions);

  [[nodiscard]] const Context& context() const noexcept { return context_; }
  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(slots_.size()); }
  [[nodiscard]] Slot& slot(std::uint32_t index) const noexcept { return *slots_[index]; }
  [[nodiscard]] const PrepareOptions& options() const noexcept { return options_; }

  /// Index of a slot reserved for the caller, or size(). Errors: `device_lost`.
  [[nodiscard]] std::uint32_t try_reserve();
  /// Asks the device about the runs that a wait for a slot waits for. Errors: those of Slot::require_progress.
  void require_progress() const;

  [[nodiscard]] std::size_t input_index(const Region& region) const;
  [[nodiscard]] std::size_t output_index(const Region& region) const;

 private:
  Context context_;
  PrepareOptions options_;
  std::vector<Region> input_regions_;
  std::vector<Region> output_regions_;
  std::vector<std::unique_ptr<Slot>> slots_;
  std::atomic<std::uint32_t> next_{0};  // Where the next search begins, so that threads do not all try slot 0 first.
};

}  // namespace weft
