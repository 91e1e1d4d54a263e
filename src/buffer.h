#pragma once

#include "allocation_domain.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace weft {

/// Device memory that is given back behind the work queued on its stream, counted as reserved. Move-only.
class Buffer {
 public:
  Buffer() noexcept = default;
  Buffer(std::shared_ptr<AllocationDomain> domain, StreamHandle stream, std::uint64_t bytes, const std::string& what);
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer();

  [[nodiscard]] DeviceAddress address() const noexcept { return address_; }
  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }

  /// Counts the memory in another domain of the same device from now on.
  void count_in(const std::shared_ptr<AllocationDomain>& domain) noexcept;

 private:
  std::shared_ptr<AllocationDomain> domain_;  // Whose allocator takes it back.
  MemoryCharge reserved_;
  StreamHandle stream_ = StreamHandle::none;  // Frees are ordered on it.
  DeviceAddress address_ = 0;
  std::uint64_t bytes_ = 0;
};

/// A weight's memory, and the request for it. Immutable once its session is frozen.
struct Weight {
  Buffer buffer;
  MemoryCharge requested;

  /// Memory for a weight, counted in `domain`.
  Weight(const std::shared_ptr<AllocationDomain>& domain, std::uint64_t bytes, const std::string& label);

  /// Hands the weight to another domain of the same device, as it is: no copy.
  void adopt(const std::shared_ptr<AllocationDomain>& domain) noexcept;
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
  MemoryCharge staging_;
  PinnedMemory memory_;
};

}  // namespace weft
