#pragma once

#include "allocation_domain.h"
#include "counters.h"
#include "lane.h"
#include "loaded_kernel.h"
#include "reclaim.h"
#include "sequencer.h"
#include "trace_recorder.h"
#include "transfer.h"
#include "watcher.h"
#include <weft/budget.h>
#include <weft/context.h>

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

namespace weft {

/// weft's own kernels, loaded once a context.
struct OwnKernels {
  std::shared_ptr<const LoadedKernel> fill;
  std::shared_ptr<const LoadedKernel> copy;
  std::shared_ptr<const LoadedKernel> complete;
  std::shared_ptr<const LoadedKernel> copy_complete;
  std::shared_ptr<const LoadedKernel> copy_table;
  std::shared_ptr<const LoadedKernel> copy_table_complete;
};

/// A lane and what its runs use.
struct Retired {
  std::shared_ptr<const Lane> lane;
  /// The last run that uses it, on a lane that others go on using; 0 where all that is queued on the stream does.
  std::uint64_t run = 0;
  std::shared_ptr<const void> memory;
  std::shared_ptr<const void> charges;          ///< Of memory that was given back in the stream's order.
  std::shared_ptr<const void> code = nullptr;   ///< And weights.
  std::shared_ptr<const void> calls = nullptr;  ///< What captured calls tied to their graphs.
};

/// A list, so that a node made in good time can change hands where nothing may fail.
using Retirement = std::list<Retired>;

/// What is behind a Context.
class ContextState final : public Reclaimer, public std::enable_shared_from_this<ContextState> {
 public:
  ContextState(Device device, std::shared_ptr<DeviceApi> api, Allocator allocator, std::optional<MemoryBudget> budget);
  ContextState(const ContextState&) = delete;
  ContextState& operator=(const ContextState&) = delete;
  /// Waits for retired lanes. What hangs, and all that may wait for it on the device, is kept for good instead.
  ~ContextState();

  [[nodiscard]] Device device() const noexcept { return device_; }
  [[nodiscard]] DeviceApi& api() const noexcept { return *domain_->api(); }
  [[nodiscard]] const std::shared_ptr<AllocationDomain>& domain() const noexcept { return domain_; }
  [[nodiscard]] const OwnKernels& own_kernels() const noexcept { return own_kernels_; }

  [[nodiscard]] Sequencer& sequencer() noexcept { return sequencer_; }
  [[nodiscard]] Transfers& transfers() noexcept { return transfers_; }
  [[nodiscard]] ContextCounters& counters() noexcept { return counters_; }
  [[nodiscard]] const std::shared_ptr<TraceRecorder>& trace() const noexcept { return trace_; }

  [[nodiscard]] Watcher& watcher() noexcept { return watcher_; }
  /// What Sequencer::submit holds for a submission that waits for the host: has the watcher launch it, and keeps the
  /// context until then. For its `gate`. Errors: those of Watcher::add.
  [[nodiscard]] std::function<void()> gate(std::function<void()> enqueue);

  /// Takes a lane that may still run with what its runs use, and lets go of both once it has drained.
  void retire(Retirement retirement) noexcept;
  /// Keeps `owner`, on which `memory` depends, until nothing is in flight on it.
  void retire_behind(TrackedMemory& memory, const std::shared_ptr<const void>& owner) noexcept;
  /// Lets go of what has drained by now.
  void reap() noexcept override;

 private:
  class GateWatch;

  Device device_;
  std::shared_ptr<AllocationDomain> domain_;
  OwnKernels own_kernels_;
  ContextCounters counters_;
  std::shared_ptr<TraceRecorder> trace_ = std::make_shared<TraceRecorder>();  // Outlived by completions, which tell it.
  Sequencer sequencer_;
  Transfers transfers_;
  std::mutex mutex_;
  Retirement retired_;  // Guarded by mutex_.
  Watcher watcher_;
};

/// Opens what is behind a Context to the files of the model layer.
struct ContextAccess {
  [[nodiscard]] static const std::shared_ptr<ContextState>& state(const Context& context) noexcept {
    return context.state_;
  }
};

}  // namespace weft
