#pragma once

#include <weft/export.h>

#include <cstdint>
#include <memory>

namespace weft {

struct BudgetState;

/// Bytes that are taken from a budget, given back when destroyed. Move-only; thread-safe to destroy.
class WEFT_API MemoryReservation {
 public:
  MemoryReservation() noexcept = default;
  MemoryReservation(MemoryReservation&& other) noexcept;
  MemoryReservation& operator=(MemoryReservation&& other) noexcept;
  ~MemoryReservation();

  [[nodiscard]] std::uint64_t bytes() const noexcept { return bytes_; }
  /// Hands over a part of the bytes; at most those that there are.
  [[nodiscard]] MemoryReservation split(std::uint64_t bytes) noexcept;

 private:
  friend class MemoryBudget;
  MemoryReservation(std::shared_ptr<BudgetState> state, std::uint64_t bytes) noexcept;
  std::shared_ptr<BudgetState> state_;
  std::uint64_t bytes_ = 0;
};

/// A ceiling in bytes over the memory that weft takes: weights, arenas with their padding, buffers and pinned staging.
/// Contexts and sessions that are given the same budget share it.
///
/// A shared handle; thread-safe. What is charged is what weft asks the device for, before it asks; the charge ends once
/// the memory has been given back.
class WEFT_API MemoryBudget {
 public:
  // No move: a handle that is moved from stays one.
  explicit MemoryBudget(std::uint64_t ceiling_bytes);
  MemoryBudget(const MemoryBudget&) = default;
  MemoryBudget& operator=(const MemoryBudget&) = default;

  [[nodiscard]] std::uint64_t ceiling_bytes() const noexcept;
  [[nodiscard]] std::uint64_t used_bytes() const noexcept;

  /// Takes bytes, 0 too. weft's own requests, when too many are in use, first look once in the whole process for what
  /// has drained. Errors, and then nothing is taken: `invalid` for more than the ceiling, which waiting does not mend;
  /// `busy` when too many are in use.
  [[nodiscard]] MemoryReservation reserve(std::uint64_t bytes) const;

  /// Whether both are handles to the same budget.
  friend bool operator==(const MemoryBudget&, const MemoryBudget&) = default;

 private:
  std::shared_ptr<BudgetState> state_;
};

}  // namespace weft
