#include "buffer_storage.h"

#include "error_context.h"
#include "refusal.h"

#include <spdlog/fmt/fmt.h>

#include <array>
#include <limits>
#include <string>

namespace weft {

BufferStorage::BufferStorage(std::shared_ptr<ContextState> context, StreamHandle stream, std::uint64_t bytes,
                             const AllocationOptions& options)
    : BufferStorage(context, options.label,
                    PlacedMemory(context->domain(), stream, bytes, options.placement,
                                 fmt::format("the buffer \"{}\"", options.label)),
                    bytes) {}

BufferStorage::BufferStorage(std::shared_ptr<ContextState> context, std::string label, PlacedMemory memory,
                             std::uint64_t bytes)
    : context_(std::move(context)),
      memory_(std::make_shared<Memory>(Memory{std::move(memory), {}})),
      tracked_(*context_, std::move(label), memory_->placed.address(), memory_->placed.host(), bytes) {}

BufferStorage::~BufferStorage() {
  context_->retire_behind(tracked_, memory_);
  memory_.reset();
  context_->reap();
}

void BufferStorage::count_requested() noexcept {
  memory_->requested = {context_->domain(), &AllocationDomain::requested, tracked_.bytes(), 1};
}

std::shared_ptr<BufferStorage> adopt_memory(const std::shared_ptr<ContextState>& context, DeviceAddress address,
                                            std::uint64_t bytes, std::string label) {
  if (bytes == 0) refuse(fmt::format("The buffer \"{}\" has 0 bytes; a buffer has 1 or more.", label));
  require_device_range(context->api(), address, bytes);
  context->reap();
  auto storage =
      std::make_shared<BufferStorage>(context, std::move(label), PlacedMemory(ForeignMemory(address, nullptr)), bytes);
  storage->count_requested();
  return storage;
}

ZeroedMemory allocate_zeroed(const std::shared_ptr<ContextState>& context, std::uint64_t bytes,
                             const AllocationOptions& options) {
  constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  if (bytes == 0 || bytes > kMost)
    refuse(fmt::format("The buffer \"{}\" has {} bytes; a buffer has 1 to {}.", options.label, bytes, kMost));
  require_enumerator(fmt::format("placement of the buffer \"{}\"", options.label), options.placement,
                     Placement::shared);
  context->reap();
  const bool on_device = options.placement == Placement::device;
  const TransferLane* lane = on_device ? &context->transfers().fresh_lane() : nullptr;
  const auto storage =
      std::make_shared<BufferStorage>(context, on_device ? lane->stream() : StreamHandle::none, bytes, options);
  ZeroedMemory zeroed{BufferStorage::track(storage), {}};
  if (on_device) {
    const std::array uses{TrackedUse{zeroed.memory.get(), 0, bytes, Access::write}};
    const std::array<Transfers::Step, 1> steps{FillNode{zeroed.memory->address(), bytes, 0}};
    zeroed.zeroed =
        in_context([&] { return fmt::format("zeroing the buffer \"{}\"", options.label); },
                   [&] { return context->transfers().submit(*lane, {.uses = uses, .producers = {}}, steps); });
  }
  storage->count_requested();
  return zeroed;
}

}  // namespace weft
