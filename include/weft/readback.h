#pragma once

#include <weft/deadline.h>
#include <weft/export.h>
#include <weft/tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace weft {

struct ReadbackState;

/// Tensors on their way to the host: a request's outputs, or one tensor's copy.
///
/// Move-only; used by one thread at a time. Keeps the slot leased, or the staging alive, until it goes. Dropping it
/// stops nothing. A moved-from object refuses every call with `invalid`.
class WEFT_API Readback {
 public:
  Readback(Readback&&) noexcept;
  Readback& operator=(Readback&&) noexcept;
  ~Readback();

  /// Number of tensors.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] const TensorDesc& desc(std::size_t index) const;

  /// Waits until the bytes are readable; as Completion::wait.
  [[nodiscard]] bool wait(Deadline deadline);

  /// One tensor's bytes where they came to lie: no copy. The span lives as long as this object. Errors: `invalid` for
  /// an index beyond the last; `busy` before they are there; what their run came to.
  [[nodiscard]] std::span<const std::byte> bytes(std::size_t index) const;
  /// All of them, copied. Errors: `busy` before they are there; what their run came to.
  [[nodiscard]] std::vector<std::vector<std::byte>> take() const;

  /// Waits, then copies tensor i to outputs[i]: true, or false when the deadline passed and nothing was written.
  /// Errors, before it waits: `invalid` for another number of spans, or a span of another length than its tensor.
  /// Allocates nothing.
  [[nodiscard]] bool read_into(std::span<const std::span<std::byte>> outputs, Deadline deadline);

 private:
  friend struct ReadbackAccess;
  explicit Readback(std::unique_ptr<ReadbackState> state) noexcept;
  [[nodiscard]] ReadbackState& state() const;
  std::unique_ptr<ReadbackState> state_;
};

}  // namespace weft
