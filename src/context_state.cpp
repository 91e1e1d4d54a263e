#include "context_state.h"

#include "device/own_kernels.h"
#include "device/process_state.h"
#include "kept_forever.h"
#include "logging.h"

#include <spdlog/fmt/fmt.h>

#include <algorithm>
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
      sequencer_(*this),
      transfers_(*this) {}

ContextState::~ContextState() {
  log(LogLevel::info, to_string(device_),
      [&] { return fmt::format("A context of {} is closed.", to_string(device_)); });
  for (const Retired& retired : retired_) retired.lane->wait_or_hang();
  if (std::ranges::any_of(retired_, [](const Retired& retired) { return retired.lane->has_hung(); })) {
    // Any lane may follow the one that hangs, and the device does not close before it ends.
    transfers_.abandon();
    keep_forever(std::make_shared<const Retirement>(std::move(retired_)));
    keep_forever(std::make_shared<const OwnKernels>(own_kernels_));
    keep_forever(domain_);
    return;
  }
  for (Retired& retired : retired_)
    log_swallowed(api().synchronize_stream(retired.lane->stream()), "wait for the last runs of a context");
}

// Launches what waits for the host, as long as something does.
class ContextState::GateWatch final : public Watch {
 public:
  explicit GateWatch(std::shared_ptr<ContextState> context) : context_(std::move(context)) {}

  bool look(bool) override { return !context_->sequencer().advance(); }

 private:
  std::shared_ptr<ContextState> context_;
};

std::function<void()> ContextState::gate(std::function<void()> enqueue) {
  std::function<void()> gated = [self = shared_from_this(), enqueue = std::move(enqueue)] { enqueue(); };
  if (!sequencer_.is_advanced()) watcher_.add(std::make_unique<GateWatch>(shared_from_this()));
  return gated;
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
  counters_.settle();
  Retirement drained;  // Destroyed outside the lock: it frees memory and code.
  const std::lock_guard lock(mutex_);
  for (auto next = retired_.begin(); next != retired_.end();) {
    const auto retired = next++;
    if (has_drained(*retired, api())) drained.splice(drained.end(), retired_, retired);
  }
}

}  // namespace weft
