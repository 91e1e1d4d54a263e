#include "refusal.h"
#include <weft/budget.h>
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <atomic>
#include <utility>

namespace weft {

struct BudgetState {
  explicit BudgetState(std::uint64_t bytes) noexcept : ceiling(bytes) {}
  const std::uint64_t ceiling;
  std::atomic<std::uint64_t> used{0};
};

MemoryReservation::MemoryReservation(std::shared_ptr<BudgetState> state, std::uint64_t bytes) noexcept
    : state_(std::move(state)), bytes_(bytes) {}

MemoryReservation::MemoryReservation(MemoryReservation&& other) noexcept
    : state_(std::move(other.state_)), bytes_(std::exchange(other.bytes_, 0)) {}

MemoryReservation& MemoryReservation::operator=(MemoryReservation&& other) noexcept {
  MemoryReservation taken(std::move(other));
  std::swap(state_, taken.state_);
  std::swap(bytes_, taken.bytes_);
  return *this;
}

MemoryReservation MemoryReservation::split(std::uint64_t bytes) noexcept {
  const std::uint64_t part = std::min(bytes, bytes_);
  bytes_ -= part;
  return {state_, part};
}

MemoryReservation::~MemoryReservation() {
  if (state_ != nullptr) state_->used.fetch_sub(bytes_, std::memory_order_relaxed);
}

MemoryBudget::MemoryBudget(std::uint64_t ceiling_bytes) : state_(std::make_shared<BudgetState>(ceiling_bytes)) {}

std::uint64_t MemoryBudget::ceiling_bytes() const noexcept { return state_->ceiling; }
std::uint64_t MemoryBudget::used_bytes() const noexcept { return state_->used.load(std::memory_order_relaxed); }

MemoryReservation MemoryBudget::reserve(std::uint64_t bytes) const {
  const std::uint64_t ceiling = state_->ceiling;
  if (bytes > ceiling) {
    refuse(fmt::format("{} bytes are more than the memory budget's ceiling of {} bytes.", bytes, ceiling));
  }
  std::uint64_t used = state_->used.load(std::memory_order_relaxed);
  do {
    if (bytes > ceiling - used) {
      throw Error(ErrorCode::busy,
                  fmt::format("{} bytes do not fit in the memory budget now: {} of its {} bytes are in "
                              "use.",
                              bytes, used, ceiling));
    }
  } while (!state_->used.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return {state_, bytes};
}

}  // namespace weft
