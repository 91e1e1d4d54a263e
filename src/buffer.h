#pragma once

#include "allocation_domain.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace weft {

/// Device memory that is given back behind the work queued on its stream. Move-only.
///
/// `requested` and `allocations` are what the models asked for in it, as MemoryStatistics counts.
class Buffer {
 public:
  Buffer() noexcept = default;
  Buffer(std::shared_ptr<AllocationDomain> domain, StreamHandle stream, std::uint64_t bytes, std::uint64_t requested,
         std::uint64_t allocations, const std::string& what);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  [[nodiscard]] DeviceAddress address() const noexcept { return address_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  /// Moves the memory to another domain of the same device, with its charge; no copy. All work on it must be done.
  void adopt(std::shared_ptr<AllocationDomain> domain) noexcept;

 private:
  std::shared_ptr<AllocationDomain> domain_;
  std::shared_ptr<AllocationDomain> allocated_in_;  // Whose allocator takes it back; differs from domain_ once adopted.
  StreamHandle stream_ = StreamHandle::none;        // Frees are ordered on it.
  DeviceAddress address_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t requested_ = 0;
  std::uint64_t allocations_ = 0;
};

/// Copies at once: queued on `stream` and waited for. One side may be pageable host memory, which nothing uses any more
/// when this returns or throws, unless the device is lost.
void copy_now(DeviceApi& api, StreamHandle stream, const CopyNode& copy, const std::string& action);

/// Pinned host memory of a context. Freed when destroyed: no queued work may use it then. Move-only.
class PinnedBuffer {
 public:
  PinnedBuffer() noexcept = default;
  PinnedBuffer(std::shared_ptr<AllocationDomain> domain, std::uint64_t bytes, const std::string& what);
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  [[nodiscard]] std::byte* host() const noexcept { return memory_.host; }
  [[nodiscard]] DeviceAddress device() const noexcept { return memory_.device; }

 private:
  std::shared_ptr<AllocationDomain> domain_;
  PinnedMemory memory_;
  std::uint64_t bytes_ = 0;
};

}  // namespace weft
