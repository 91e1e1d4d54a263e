#pragma once

#include <weft/completion.h>
#include <weft/deadline.h>
#include <weft/export.h>
#include <weft/region.h>
#include <weft/tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace weft {

class Readback;
class TrackedMemory;

/// A tensor that the device works on. Either it is in memory, with a completion that says when its values are there; or
/// it is a tensor of an unprepared graph, which has bytes and an address in each slot once the graph is prepared.
///
/// A shared handle: copies mean the same bytes. Thread-safe. A tensor in memory keeps its memory alive; one that a
/// request put out also keeps the request's slot leased, as does every view of it and every graph recorded over it. A
/// tensor of a graph keeps nothing alive. An empty tensor has no memory.
class WEFT_API DeviceTensor {
 public:
  // No move: a handle that is moved from stays one.
  DeviceTensor(const DeviceTensor&) = default;
  DeviceTensor& operator=(const DeviceTensor&) = default;

  [[nodiscard]] const TensorDesc& desc() const noexcept { return desc_; }

  /// When its values are there. A tensor of a graph is done: its values are those of the runs of its slot.
  [[nodiscard]] const Completion& completion() const noexcept { return completion_; }
  /// Waits for its values; as Completion::wait.
  [[nodiscard]] bool wait(Deadline deadline) const { return completion_.wait(deadline); }

  /// Another tensor over a part of the same bytes, `offset` in bytes from this one's start. Errors: `invalid` when it
  /// leaves this tensor, or its offset in the memory is no multiple of the element size.
  [[nodiscard]] DeviceTensor view(const TensorDesc& desc, std::uint64_t offset = 0) const;

  /// Copies this tensor to the bytes of `destination` from `offset` on, behind whatever writes either of them, and
  /// returns the copy. Returns before it is done. A copy onto itself does nothing. Errors, and then nothing happens:
  /// `invalid` for another context, another element type, a tensor that is not contiguous, an offset that is no
  /// multiple of the element size, a copy that leaves the destination or overlaps itself in part, or a tensor of a
  /// graph; `busy` while the host maps either.
  DeviceTensor copy_into(const DeviceTensor& destination, std::uint64_t offset = 0) const;

  /// Copies the bytes to the host, behind whatever writes them. Returns before it is done. Memory that the host can
  /// read is not copied: while the readback lives, submissions that write it are refused with `busy`. Errors: `invalid`
  /// for a tensor of a graph; `busy` while the host maps it for writing; those of Context::allocate for the staging.
  [[nodiscard]] Readback download() const;

  /// A tensor of a graph as an argument of that graph's commands. Errors: `invalid` for a tensor in memory, which
  /// Graph::bind makes one of the graph.
  [[nodiscard]] TensorRegion region() const;
  /// The same with the element type checked: `invalid` when it is another one.
  template <Element T>
  [[nodiscard]] TypedRegion<T> region() const {
    return {region(), desc_};
  }

 private:
  friend struct DeviceTensorAccess;
  DeviceTensor(const TensorDesc& desc, std::uint64_t graph, std::uint32_t allocation, std::uint64_t offset)
      : desc_(desc), graph_(graph), allocation_(allocation), offset_(offset) {}
  DeviceTensor(const TensorDesc& desc, std::shared_ptr<TrackedMemory> memory, std::uint64_t offset,
               Completion completion)
      : desc_(desc), memory_(std::move(memory)), offset_(offset), completion_(std::move(completion)) {}

  TensorDesc desc_;
  std::uint64_t graph_ = 0;                // Id of the graph whose allocation it is; 0 for a tensor in memory.
  std::uint32_t allocation_ = 0;           // Index in that graph.
  std::shared_ptr<TrackedMemory> memory_;  // Null for a tensor of a graph, and for an empty one.
  std::uint64_t offset_ = 0;               // Bytes from the start of the allocation or the memory.
  Completion completion_;
};

}  // namespace weft
