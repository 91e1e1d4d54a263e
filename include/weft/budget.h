#pragma once

#include <weft/export.h>

#include <cstdint>
#include <memory>

namespace weft {

class AllocationDomain;
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
  /// Takes over the bytes of another reservation of the same budget; of another budget they are given back.
  void merge(MemoryReservation other) noexcept;

 private:
  friend class MemoryBudget;
  MemoryReservation(std::shared_ptr<BudgetState> state, std::uint64_t bytes) noexcept;
  std::shared_ptr<BudgetState> state_;
  std::uint64_t bytes_ = 0;
};

/// A ceiling in bytes over the memory that weft takes: weights, state, arenas with their padding, buffers, pinned
/// staging, and the memory of graphs. Contexts, sessions and residencies that are given the same budget share it.
///
/// A shared handle; thread-safe. What is charged is what weft asks the device for, before it asks; the charge ends once
/// the memory has been given back. A budget keeps none of its users: it outlives them, and they outlive its handles.
class WEFT_API MemoryBudget {
 public:
  // No move: a handle that is moved from stays one.
  explicit MemoryBudget(std::uint64_t ceiling_bytes);
  MemoryBudget(const MemoryBudget&) = default;
  MemoryBudget& operator=(const MemoryBudget&) = default;

  [[nodiscard]] std::uint64_t ceiling_bytes() const noexcept;
  [[nodiscard]] std::uint64_t used_bytes() const noexcept;

  /// Takes bytes, 0 too, as weft's own requests do. When too many are in use, it looks once in the whole process for
  /// what has drained, then evicts idle units of residencies and plan caches that are charged to this budget, the least
  /// recently used first, until the bytes fit. Their destructors run here, so call it under no lock that one of them
  /// takes. Errors, and then nothing is taken: `invalid` for more than the ceiling, which waiting does not mend; `busy`
  /// when too many are in use and nothing more can be evicted.
  [[nodiscard]] MemoryReservation reserve(std::uint64_t bytes) const;

  /// Whether both are handles to the same budget.
  friend bool operator==(const MemoryBudget&, const MemoryBudget&) = default;

 private:
  friend class AllocationDomain;
  /// The same without a look for more: it runs nothing else.
  [[nodiscard]] MemoryReservation reserve_now(std::uint64_t bytes) const;
  [[nodiscard]] bool take(std::uint64_t bytes) const noexcept;
  void require_possible(std::uint64_t bytes) const;
  [[noreturn]] void refuse_for_now(std::uint64_t bytes) const;

  std::shared_ptr<BudgetState> state_;
};

}  // namespace weft
