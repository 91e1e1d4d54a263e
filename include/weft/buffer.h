#pragma once

#include <weft/contract.h>
#include <weft/deadline.h>
#include <weft/device_tensor.h>
#include <weft/export.h>
#include <weft/tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

namespace weft {

class TrackedMemory;

/// Holds a buffer's memory for the host to read. While it lives, submissions that write the memory are refused with
/// `busy`. Move-only; keeps the memory alive. The span lives as long as the guard.
class WEFT_API ReadGuard {
 public:
  ReadGuard(ReadGuard&& other) noexcept;
  ReadGuard& operator=(ReadGuard&& other) noexcept;
  ~ReadGuard();
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }

 private:
  friend class Buffer;
  ReadGuard(std::shared_ptr<TrackedMemory> memory, std::span<const std::byte> bytes) noexcept;
  std::shared_ptr<TrackedMemory> memory_;
  std::span<const std::byte> bytes_;
};

/// Holds a buffer's memory for the host to write. While it lives, submissions that touch the memory are refused with
/// `busy`. Move-only; keeps the memory alive. The span lives as long as the guard.
class WEFT_API WriteGuard {
 public:
  WriteGuard(WriteGuard&& other) noexcept;
  WriteGuard& operator=(WriteGuard&& other) noexcept;
  ~WriteGuard();
  [[nodiscard]] std::span<std::byte> bytes() const noexcept { return bytes_; }

 private:
  friend class Buffer;
  WriteGuard(std::shared_ptr<TrackedMemory> memory, std::span<std::byte> bytes) noexcept;
  std::shared_ptr<TrackedMemory> memory_;
  std::span<std::byte> bytes_;
};

/// Bytes [offset, offset + bytes) of one allocation of a context, or all of it.
///
/// A shared handle: copies and slices mean the same memory, which lives as long as one of them, a tensor over it, or a
/// graph or run that uses it. Thread-safe; submissions that touch the same bytes are ordered by weft.
class WEFT_API Buffer {
 public:
  // No move: a handle that is moved from stays one.
  Buffer(const Buffer&) = default;
  Buffer& operator=(const Buffer&) = default;

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  [[nodiscard]] Placement placement() const noexcept;

  /// A part, `from` and `size` in bytes. Errors: `invalid` when it leaves this one.
  [[nodiscard]] Buffer slice(std::uint64_t from, std::uint64_t size) const;
  /// A tensor over these bytes, from byte `offset` on; its values are there when what is in flight on them is done.
  /// Errors: `invalid` when it does not fit, or does not start at a multiple of its element size in the allocation.
  [[nodiscard]] DeviceTensor tensor(const TensorDesc& desc, std::uint64_t offset = 0) const;

  /// Waits for what is in flight on the allocation and conflicts, then holds it for the host: many readers or one
  /// writer, of the whole allocation. Empty when the deadline passed. Errors: `unsupported` for device memory; `busy`,
  /// at once, while another guard conflicts; those of Completion::wait.
  [[nodiscard]] std::optional<ReadGuard> map_read(Deadline deadline) const;
  [[nodiscard]] std::optional<WriteGuard> map_write(Deadline deadline) const;
  /// The same without waiting: empty while work in flight or another guard conflicts. Errors: `unsupported` for device
  /// memory.
  [[nodiscard]] std::optional<ReadGuard> try_map_read() const;
  [[nodiscard]] std::optional<WriteGuard> try_map_write() const;

 private:
  friend struct BufferAccess;
  Buffer(std::shared_ptr<TrackedMemory> memory, std::uint64_t offset, std::uint64_t bytes) noexcept;
  std::shared_ptr<TrackedMemory> memory_;
  std::uint64_t offset_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace weft
