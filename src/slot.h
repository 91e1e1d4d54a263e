#pragma once

#include "buffer.h"
#include "completion_word.h"
#include "context_state.h"
#include "graph_builder.h"
#include "slot_plan.h"
#include <weft/plan/arena.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace weft {

/// One bounded request in flight: a stream, private memory, a graph and its executable, and the word that counts its
/// runs.
///
/// `try_reserve` and `release` are thread-safe; everything between them belongs to who reserved the slot.
class Slot {
 public:
  /// `pinned` is the slot's part of the pool's pinned memory, plan->pinned.reserved bytes. Work may still be queued on
  /// the slot's stream afterwards: see `settle`.
  Slot(ContextState& context, std::shared_ptr<const SlotPlan> plan, std::shared_ptr<const PinnedBuffer> pinned,
       std::uint64_t pinned_offset, bool separate_allocations);
  Slot(const Slot&) = delete;
  Slot& operator=(const Slot&) = delete;
  /// Does not wait: memory is freed behind the last run, and the context keeps what that run uses until then.
  ~Slot();

  /// Waits until the slot is ready for its first run.
  void settle();

  /// Reserves the slot if it is free and has drained.
  [[nodiscard]] bool try_reserve() noexcept;
  void release() noexcept { reserved_.store(false, std::memory_order_release); }
  [[nodiscard]] bool is_idle() const noexcept { return !reserved_.load(std::memory_order_acquire) && has_drained(); }

  /// Launches the graph and returns the number of the run. Errors: what the device says; then nothing has been
  /// launched.
  [[nodiscard]] std::uint64_t launch();
  [[nodiscard]] bool has_finished(std::uint64_t run) const noexcept { return word_.reached(run); }
  /// Asks the device about a run that takes long. Errors: `device_lost`; `internal` if the stream drained without it.
  void require_progress(std::uint64_t run) const;
  /// The same about the last run.
  void require_progress() const { require_progress(launched_.load(std::memory_order_acquire)); }

  [[nodiscard]] const SlotPlan& plan() const noexcept { return *plan_; }
  [[nodiscard]] std::span<std::byte> input(std::size_t index) const noexcept {
    return staging(plan_->input_staging[index]);
  }
  [[nodiscard]] std::span<std::byte> output(std::size_t index) const noexcept {
    return staging(plan_->output_staging[index]);
  }
  [[nodiscard]] GraphHandle graph() const noexcept { return graph_.graph.get(); }
  [[nodiscard]] const std::vector<NodeHandle>& nodes() const noexcept { return graph_.nodes; }

  void check_canaries() const;

 private:
  [[nodiscard]] bool has_drained() const noexcept { return word_.reached(launched_.load(std::memory_order_acquire)); }
  /// For the contexts of errors.
  [[nodiscard]] std::string describe() const;
  [[nodiscard]] std::span<std::byte> staging(std::uint32_t allocation) const noexcept;
  [[nodiscard]] DeviceAddress allocate(const std::string& what, std::uint64_t bytes, std::uint64_t canary);
  [[nodiscard]] std::vector<DeviceAddress> place(bool separate_allocations);

  ContextState& context_;  // Not owned; the pool keeps it alive.
  std::shared_ptr<const SlotPlan> plan_;
  std::shared_ptr<const PinnedBuffer> pinned_;
  std::uint64_t pinned_offset_;
  UniqueStream stream_;
  Retirement retirement_;       // Made with the slot, so that giving it up cannot fail.
  std::vector<Buffer> memory_;  // The arena, or one a region.
  MemoryCharge requested_;
  BuiltGraph graph_;
  CompletionWord word_;
  std::atomic<std::uint64_t> launched_{0};  // Written by who reserved the slot.
  std::atomic<bool> reserved_{false};
};

}  // namespace weft
