#pragma once

#include "context_state.h"
#include "placed_memory.h"
#include "tracked_memory.h"
#include <weft/buffer.h>
#include <weft/completion.h>
#include <weft/region.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace weft {

/// An allocation of a context that handles share. Keeps the context, which takes the memory when the last handle goes
/// while work is in flight on it.
class BufferStorage {
 public:
  /// Device memory is undefined at first and for work that follows on `stream`, which lives as long as the context;
  /// shared memory is zeroed. Errors: those of DeviceMemory and PinnedBuffer.
  BufferStorage(std::shared_ptr<ContextState> context, StreamHandle stream, std::uint64_t bytes,
                const AllocationOptions& options);
  /// Memory of the context's device, as it is, which the context's domain counts.
  BufferStorage(std::shared_ptr<ContextState> context, std::string label, PlacedMemory memory, std::uint64_t bytes);
  BufferStorage(const BufferStorage&) = delete;
  BufferStorage& operator=(const BufferStorage&) = delete;
  ~BufferStorage();

  /// Counts the memory as requested, as long as it lives.
  void count_requested() noexcept;
  /// For memory of somebody else; see ForeignMemory::on_release.
  void on_release(std::function<void()> release) noexcept { memory_->placed.on_release(std::move(release)); }

  /// The memory of `storage`, which it keeps.
  [[nodiscard]] static std::shared_ptr<TrackedMemory> track(const std::shared_ptr<BufferStorage>& storage) noexcept {
    return {storage, &storage->tracked_};
  }

 private:
  struct Memory {
    PlacedMemory placed;
    MemoryCharge requested;
  };

  std::shared_ptr<ContextState> context_;
  std::shared_ptr<Memory> memory_;  // Made with the storage, so that giving it up cannot fail.
  TrackedMemory tracked_;
};

/// Memory of a new buffer, and when it is zeroed.
struct ZeroedMemory {
  std::shared_ptr<TrackedMemory> memory;
  Completion zeroed;
};

/// As Context::allocate.
[[nodiscard]] ZeroedMemory allocate_zeroed(const std::shared_ptr<ContextState>& context, std::uint64_t bytes,
                                           const AllocationOptions& options);

/// Memory of somebody else, from `address` on, without a copy. Its release is set by the caller, last: on an error the
/// memory stays theirs. Errors: those of require_device_range; `invalid` for no bytes.
[[nodiscard]] std::shared_ptr<BufferStorage> adopt_memory(const std::shared_ptr<ContextState>& context,
                                                          DeviceAddress address, std::uint64_t bytes,
                                                          std::string label);

/// Makes buffers for the context.
struct BufferAccess {
  [[nodiscard]] static Buffer make(std::shared_ptr<TrackedMemory> memory) noexcept {
    const std::uint64_t bytes = memory->bytes();
    return {std::move(memory), 0, bytes};
  }
};

}  // namespace weft
