#include "checked_math.h"
#include "context_state.h"
#include "device_tensor_access.h"
#include "refusal.h"
#include "tracked_memory.h"
#include <weft/buffer.h>
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace weft {

namespace {

void require_host_memory(const TrackedMemory& memory) {
  if (memory.placement() == Placement::shared) return;
  throw Error(ErrorCode::unsupported, fmt::format("The buffer \"{}\" is device memory, which the host cannot map; "
                                                  "shared memory can be mapped.",
                                                  memory.label()));
}

/// Reserves the memory for the host, behind what is in flight. False when the deadline passed.
bool map(TrackedMemory& memory, Access access, Deadline deadline) {
  require_host_memory(memory);
  Sequencer& sequencer = memory.home().sequencer();
  for (;;) {
    switch (sequencer.map(memory, access)) {
      case Sequencer::Mapping::granted:
        return true;
      case Sequencer::Mapping::host_busy:
        throw Error(ErrorCode::busy, fmt::format("The buffer \"{}\" is mapped already; {}.", memory.label(),
                                                 writes(access) ? "a writer maps it alone"
                                                                : "a reader maps it with other readers alone"));
      case Sequencer::Mapping::reserved:
        throw Error(ErrorCode::busy,
                    fmt::format("The buffer \"{}\" is reserved for work outside weft, until the callback "
                                "that queues it returns.",
                                memory.label()));
      case Sequencer::Mapping::device_busy:
        if (!sequencer.wait(memory, access, deadline)) return false;
    }
  }
}

bool try_map(TrackedMemory& memory, Access access) {
  require_host_memory(memory);
  return memory.home().sequencer().map(memory, access) == Sequencer::Mapping::granted;
}

}  // namespace

ReadGuard::ReadGuard(std::shared_ptr<TrackedMemory> memory, std::span<const std::byte> bytes) noexcept
    : memory_(std::move(memory)), bytes_(bytes) {}

ReadGuard::ReadGuard(ReadGuard&& other) noexcept
    : memory_(std::move(other.memory_)), bytes_(std::exchange(other.bytes_, {})) {}

ReadGuard& ReadGuard::operator=(ReadGuard&& other) noexcept {
  ReadGuard taken(std::move(other));  // Takes this one's hold away with it.
  std::swap(memory_, taken.memory_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

ReadGuard::~ReadGuard() {
  if (memory_ != nullptr) memory_->home().sequencer().unmap(*memory_, Access::read);
}

WriteGuard::WriteGuard(std::shared_ptr<TrackedMemory> memory, std::span<std::byte> bytes) noexcept
    : memory_(std::move(memory)), bytes_(bytes) {}

WriteGuard::WriteGuard(WriteGuard&& other) noexcept
    : memory_(std::move(other.memory_)), bytes_(std::exchange(other.bytes_, {})) {}

WriteGuard& WriteGuard::operator=(WriteGuard&& other) noexcept {
  WriteGuard taken(std::move(other));  // Takes this one's hold away with it.
  std::swap(memory_, taken.memory_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

WriteGuard::~WriteGuard() {
  if (memory_ != nullptr) memory_->home().sequencer().unmap(*memory_, Access::write);
}

Buffer::Buffer(std::shared_ptr<TrackedMemory> memory, std::uint64_t offset, std::uint64_t bytes) noexcept
    : memory_(std::move(memory)), offset_(offset), bytes_(bytes) {}

Placement Buffer::placement() const noexcept { return memory_->placement(); }

Buffer Buffer::slice(std::uint64_t from, std::uint64_t size) const {
  const auto end = checked_add(from, size);
  if (!end || *end > bytes_) {
    refuse(fmt::format("The slice of {} bytes at byte {} leaves its part of {} bytes of the buffer \"{}\".", size, from,
                       bytes_, memory_->label()));
  }
  return {memory_, offset_ + from, size};
}

DeviceTensor Buffer::tensor(const TensorDesc& desc, std::uint64_t offset) const {
  const DeviceTensor whole = DeviceTensorAccess::in_memory(TensorDesc(DType::u8, {bytes_}), memory_, offset_,
                                                           memory_->home().transfers().join(memory_, offset_, bytes_));
  return whole.view(desc, offset);
}

std::optional<ReadGuard> Buffer::map_read(Deadline deadline) const {
  if (!map(*memory_, Access::read, deadline)) return {};
  return ReadGuard(memory_, {memory_->host() + offset_, bytes_});
}

std::optional<WriteGuard> Buffer::map_write(Deadline deadline) const {
  if (!map(*memory_, Access::write, deadline)) return {};
  return WriteGuard(memory_, {memory_->host() + offset_, bytes_});
}

std::optional<ReadGuard> Buffer::try_map_read() const {
  if (!try_map(*memory_, Access::read)) return {};
  return ReadGuard(memory_, {memory_->host() + offset_, bytes_});
}

std::optional<WriteGuard> Buffer::try_map_write() const {
  if (!try_map(*memory_, Access::write)) return {};
  return WriteGuard(memory_, {memory_->host() + offset_, bytes_});
}

}  // namespace weft
