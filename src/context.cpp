#include "buffer_storage.h"
#include "checked_math.h"
#include "context_state.h"
#include "device/process_state.h"
#include "device/registry.h"
#include "device_tensor_access.h"
#include "error_context.h"
#include "logging.h"
#include "reclaim.h"
#include "refusal.h"
#include <weft/buffer.h>
#include <weft/context.h>
#include <weft/device_tensor.h>
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <array>
#include <span>
#include <utility>

namespace weft {

namespace {

/// Descriptor of tensors joined along their first dimension. Errors: as Context::concatenate.
TensorDesc concatenated_desc(const std::vector<DeviceTensor>& tensors, const ContextState& context) {
  if (tensors.empty()) refuse("No tensors are given; at least 1 is needed.");
  const TensorDesc& first = tensors.front().desc();
  if (first.shape().empty())
    refuse(fmt::format("Tensor 0 is the scalar {}, which has no dimension to join along.", to_string(first)));
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorDesc& desc = tensors[i].desc();
    if (DeviceTensorAccess::is_in_graph(tensors[i])) refuse(fmt::format("Tensor {} is one of an unprepared graph.", i));
    const auto& memory = DeviceTensorAccess::memory(tensors[i]);
    if (memory != nullptr && &memory->home() != &context)
      refuse(fmt::format("Tensor {} belongs to another context.", i));
    const bool fits = desc.dtype() == first.dtype() && desc.layout() == first.layout() &&
                      desc.shape().size() == first.shape().size() &&
                      std::equal(desc.shape().begin() + 1, desc.shape().end(), first.shape().begin() + 1);
    if (!fits) {
      refuse(fmt::format("Tensor {} is {} and tensor 0 is {}; they may differ in their first dimension alone.", i,
                         to_string(desc), to_string(first)));
    }
    if (!desc.is_contiguous()) refuse(fmt::format("Tensor {}, {}, is not contiguous.", i, to_string(desc)));
    const auto sum = checked_add(length, desc.shape().front());
    if (!sum) refuse("The first dimensions add up to 2^64 or more.");
    length = *sum;
  }
  Shape shape = first.shape();
  shape.front() = length;
  return {first.dtype(), std::move(shape), first.layout()};
}

/// Device memory for a transfer on `lane`, which writes all of it.
std::shared_ptr<BufferStorage> allocate_on(const std::shared_ptr<ContextState>& context, const TransferLane& lane,
                                           std::uint64_t bytes, const std::string& label) {
  context->reap();
  return std::make_shared<BufferStorage>(context, lane.stream(), bytes,
                                         AllocationOptions{.label = label, .placement = Placement::device});
}

}  // namespace

Context::Context(std::shared_ptr<ContextState> state) noexcept : state_(std::move(state)) {}

Context Context::open(Device device, ContextOptions options) {
  if (static_cast<bool>(options.allocator.allocate) != static_cast<bool>(options.allocator.release))
    refuse("The context's allocator has one of allocate and release; it needs both or neither.");
  auto state = std::make_shared<ContextState>(device, open_device(device), std::move(options.allocator),
                                              std::move(options.budget));
  add_reclaimer(state);
  log(LogLevel::info, to_string(device), [&] {
    const DeviceLimits& limits = state->api().limits();
    const std::string driver = limits.driver_version == 0 ? "no driver"
                                                          : fmt::format("driver {}.{}", limits.driver_version / 1000,
                                                                        limits.driver_version % 1000 / 10);
    return fmt::format("A context of {} is open: {}, compute capability {}.{}, {}, {} bytes of memory.",
                       to_string(device), limits.name, limits.compute_capability / 10, limits.compute_capability % 10,
                       driver, limits.total_memory_bytes);
  });
  return Context(std::move(state));
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
          .staging = domain.staging.snapshot(),
          .graphs = domain.graphs.snapshot()};
}

ContextStatistics Context::statistics() const {
  check(process_status(), "tell its statistics");  // Before a lock that a thread which is gone may hold.
  return {.memory = memory(),
          .models = state_->counters().models(),
          .slots = state_->counters().slots(),
          .transfers = state_->transfers().statistics(),
          .callback_failures = state_->watcher().caught()};
}

Readiness Context::ready() const {
  try {
    check(state_->api().health(), "run requests");
  } catch (const Error& error) {
    return {false, error.sentence()};
  }
  return {true, {}};
}

TraceRecording Context::start_trace(TraceOptions options) const {
  state_->trace()->start(options);
  return TraceRecording(state_);
}

Buffer Context::allocate(std::uint64_t bytes, AllocationOptions options) const {
  return BufferAccess::make(allocate_zeroed(state_, bytes, options).memory);
}

Buffer Context::adopt(Trusted, AdoptedMemory memory, std::uint64_t bytes, std::string label) const {
  return in_context(
      [&] { return fmt::format("adopting the buffer \"{}\"", label); },
      [&] {
        const auto storage = adopt_memory(state_, reinterpret_cast<DeviceAddress>(memory.address), bytes, label);
        storage->on_release(std::move(memory.release));  // Last: on an error the memory stays the caller's.
        return BufferAccess::make(BufferStorage::track(storage));
      });
}

DeviceTensor Context::tensor(const TensorDesc& desc, AllocationOptions options) const {
  if (desc.is_empty()) return DeviceTensorAccess::in_memory(desc, nullptr, 0, {});
  ZeroedMemory zeroes = allocate_zeroed(state_, desc.bytes(), options);
  return DeviceTensorAccess::in_memory(desc, std::move(zeroes.memory), 0, std::move(zeroes.zeroed));
}

DeviceTensor Context::upload(const HostTensor& tensor) const {
  return in_context([&] { return fmt::format("uploading the tensor \"{}\"", tensor.label); },
                    [&] {
                      const std::uint64_t bytes = tensor.desc.bytes();
                      if (tensor.bytes.size() != bytes) {
                        refuse(fmt::format("The tensor {} has {} bytes; {} are given.", to_string(tensor.desc), bytes,
                                           tensor.bytes.size()));
                      }
                      if (tensor.desc.is_empty()) return DeviceTensorAccess::in_memory(tensor.desc, nullptr, 0, {});
                      Transfers& transfers = state_->transfers();
                      const TransferLane& lane = transfers.fresh_lane();
                      const auto storage = allocate_on(state_, lane, bytes, tensor.label);
                      auto memory = BufferStorage::track(storage);
                      transfers.stage(memory->address(), tensor.bytes);
                      const std::array uses{TrackedUse{memory.get(), 0, bytes, Access::write}};
                      Completion uploaded = transfers.submit(lane, {.uses = uses, .producers = {}}, {});
                      storage->count_requested();
                      return DeviceTensorAccess::in_memory(tensor.desc, std::move(memory), 0, std::move(uploaded));
                    });
}

DeviceTensor Context::concatenate(const std::vector<DeviceTensor>& tensors) const {
  return in_context([&] { return fmt::format("concatenating {} tensors", tensors.size()); },
                    [&] {
                      const TensorDesc desc = concatenated_desc(tensors, *state_);
                      if (desc.is_empty()) return DeviceTensorAccess::in_memory(desc, nullptr, 0, {});
                      Transfers& transfers = state_->transfers();
                      const TransferLane& lane = transfers.lane();
                      const auto storage = allocate_on(state_, lane, desc.bytes(), "concatenated");
                      auto memory = BufferStorage::track(storage);
                      std::vector<TrackedUse> uses{{memory.get(), 0, desc.bytes(), Access::write}};
                      std::vector<Transfers::Step> steps;
                      std::vector<Completion> producers;
                      std::vector<std::shared_ptr<TrackedMemory>> owners{memory};
                      std::uint64_t offset = 0;
                      for (const DeviceTensor& tensor : tensors) {
                        if (tensor.desc().is_empty()) continue;
                        const std::uint64_t bytes = tensor.desc().bytes();
                        const std::uint64_t from = DeviceTensorAccess::offset(tensor);
                        const std::shared_ptr<TrackedMemory>& source = DeviceTensorAccess::memory(tensor);
                        owners.push_back(source);
                        uses.push_back({source.get(), from, from + bytes, Access::read});
                        steps.emplace_back(CopyNode{memory->address() + offset, source->address() + from, bytes});
                        producers.push_back(tensor.completion());
                        offset += bytes;
                      }
                      Completion copied = transfers.submit(lane, {.uses = uses, .producers = producers}, steps, owners);
                      storage->count_requested();
                      return DeviceTensorAccess::in_memory(desc, std::move(memory), 0, std::move(copied));
                    });
}

}  // namespace weft
