#include "context_state.h"
#include "device/own_kernels.h"
#include "device/registry.h"
#include <weft/context.h>
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace weft {

namespace {

OwnKernels load_own_kernels(const std::shared_ptr<DeviceApi>& api) {
  const LoadedModule module = load_module(api, own::copy_spec().image);
  return {.fill = load_kernel(*api, module, own::fill_spec()),
          .copy = load_kernel(*api, module, own::copy_spec()),
          .complete = load_kernel(*api, module, own::complete_spec()),
          .copy_complete = load_kernel(*api, module, own::copy_complete_spec())};
}

}  // namespace

ContextState::ContextState(Device device, std::shared_ptr<DeviceApi> api, Allocator allocator)
    : device_(device),
      domain_(std::make_shared<AllocationDomain>(std::move(api), std::move(allocator))),
      own_kernels_(load_own_kernels(domain_->api())) {}

ContextState::~ContextState() {
  for (Retired& retired : retired_) static_cast<void>(api().synchronize_stream(retired.stream.get()));
}

void ContextState::retire(Retirement retirement) noexcept {
  const std::lock_guard lock(mutex_);
  retired_.splice(retired_.end(), retirement);
}

void ContextState::reap() noexcept {
  Retirement drained;  // Destroyed outside the lock: it frees memory and code.
  const std::lock_guard lock(mutex_);
  for (auto next = retired_.begin(); next != retired_.end();) {
    const auto retired = next++;
    if (api().query_stream(retired->stream.get()).code != StatusCode::not_ready)
      drained.splice(drained.end(), retired_, retired);
  }
}

Context::Context(std::shared_ptr<ContextState> state) noexcept : state_(std::move(state)) {}

Context Context::open(Device device, ContextOptions options) {
  if (static_cast<bool>(options.allocator.allocate) != static_cast<bool>(options.allocator.release)) {
    throw Error(ErrorCode::invalid,
                "The context's allocator has one of allocate and release; it needs both or neither.");
  }
  return Context(std::make_shared<ContextState>(device, open_device(device), std::move(options.allocator)));
}

Device Context::device() const noexcept { return state_->device(); }

DeviceProperties Context::properties() const {
  const DeviceLimits& limits = state_->api().limits();
  return {.name = limits.name,
          .compute_capability = limits.compute_capability,
          .driver_version = limits.driver_version,
          .total_memory_bytes = limits.total_memory_bytes};
}

MemoryStatistics Context::memory() const {
  state_->reap();
  const AllocationDomain& domain = *state_->domain();
  return {.requested = domain.requested.snapshot(),
          .reserved = domain.reserved.snapshot(),
          .staging = domain.staging.snapshot()};
}

}  // namespace weft
