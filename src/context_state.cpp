#include "context_state.h"

#include "device/own_kernels.h"
#include "device/process_state.h"

#include <utility>

namespace weft {

namespace {

OwnKernels load_own_kernels(const std::shared_ptr<DeviceApi>& api) {
  const LoadedModule module = load_module(api, own::copy_spec().image);
  return {.fill = load_kernel(*api, module, own::fill_spec()),
          .copy = load_kernel(*api, module, own::copy_spec()),
          .complete = load_kernel(*api, module, own::complete_spec()),
          .copy_complete = load_kernel(*api, module, own::copy_complete_spec()),
          .copy_table = load_kernel(*api, module, own::copy_table_spec()),
          .copy_table_complete = load_kernel(*api, module, own::copy_table_complete_spec())};
}

// A run's number may be written by the node that used the memory last, before it has ended; that of a later run tells
// that it has, or else the stream.
bool has_drained(const Retired& retired, DeviceApi& api) noexcept {
  if (!api.health().ok()) return true;  // Nothing runs any more.
  if (retired.run != 0) {
    if (retired.lane->has_finished(retired.run + 1)) return true;
    if (!retired.lane->has_finished(retired.run)) return false;
  }
  return api.query_stream(retired.lane->stream()).ok();
}

}  // namespace

ContextState::ContextState(Device device, std::shared_ptr<DeviceApi> api, Allocator allocator,
                           std::optional<MemoryBudget> budget)
    : device_(device),
      domain_(std::make_shared<AllocationDomain>(std::move(api), std::move(allocator), std::move(budget))),
      own_kernels_(load_own_kernels(domain_->api())),
      transfers_(*this) {}

ContextState::~ContextState() {
  for (Retired& retired : retired_) static_cast<void>(api().synchronize_stream(retired.lane->stream()));
}

void ContextState::retire(Retirement retirement) noexcept {
  if (process_state() != ProcessState::running) return;  // The lock may be held by a thread that is gone.
  const std::lock_guard lock(mutex_);
  retired_.splice(retired_.end(), retirement);
}

void ContextState::retire_behind(TrackedMemory& memory, const std::shared_ptr<const void>& owner) noexcept {
  if (!memory.may_be_in_flight()) return;
  for (const LaneRun& run : sequencer_.runs(memory)) {
    Retirement retirement(1);
    retirement.front() =
        Retired{.lane = run.lane, .run = run.run, .memory = owner, .charges = nullptr, .code = nullptr};
    retire(std::move(retirement));
  }
}

void ContextState::reap() noexcept {
  if (process_state() != ProcessState::running) return;
  Retirement drained;  // Destroyed outside the lock: it frees memory and code.
  const std::lock_guard lock(mutex_);
  for (auto next = retired_.begin(); next != retired_.end();) {
    const auto retired = next++;
    if (has_drained(*retired, api())) drained.splice(drained.end(), retired_, retired);
  }
}

}  // namespace weft
