#pragma once

#include "allocation_domain.h"
#include "pinned_buffer.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace weft {

/// Copies pageable host memory to the device by way of two pinned buffers, filled in turns.
///
/// The buffers come with the first copy, grow to the largest copy so far or kLargestPiece, and then stay. Used by one
/// thread at a time.
class StagedCopy {
 public:
  static constexpr std::uint64_t kLargestPiece = std::uint64_t{8} << 20;

  explicit StagedCopy(std::shared_ptr<AllocationDomain> domain, Shortage shortage = Shortage::reclaim) noexcept;
  StagedCopy(const StagedCopy&) = delete;
  StagedCopy& operator=(const StagedCopy&) = delete;
  /// Waits for its own copies.
  ~StagedCopy();

  /// Makes the buffers ready for a copy of this size: then only the device can fail it. Errors: those of PinnedBuffer
  /// and of the device.
  void reserve(std::uint64_t bytes);

  /// Queues the copy on `stream`; `source` may go when this returns. Waits only for the copies that still use the
  /// buffers. Errors: those of PinnedBuffer and of the device; a part of the copy may be queued then.
  void copy(StreamHandle stream, DeviceAddress destination, std::span<const std::byte> source);

 private:
  struct Piece {
    PinnedBuffer memory;
    UniqueEvent copied;
    bool in_use = false;  // A copy was queued from it that has not been waited for.
  };
  /// Waits until nothing uses the piece, and makes it at least this large.
  void make_ready(Piece& piece, std::uint64_t bytes);
  void queue(Piece& piece, StreamHandle stream, DeviceAddress destination, std::span<const std::byte> source);

  std::shared_ptr<AllocationDomain> domain_;
  const Shortage shortage_;
  std::array<Piece, 2> pieces_;
  std::size_t next_ = 0;
};

}  // namespace weft
