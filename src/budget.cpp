#include "reclaim.h"
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

void MemoryReservation::merge(MemoryReservation other) noexcept {
  if (state_ == nullptr) *this = std::move(other);
  if (other.state_ == state_) bytes_ += std::exchange(other.bytes_, 0);
}

MemoryReservation::~MemoryReservation() {
  if (state_ != nullptr) state_->used.fetch_sub(bytes_, std::memory_order_relaxed);
}

MemoryBudget::MemoryBudget(std::uint64_t ceiling_bytes) : state_(std::make_shared<BudgetState>(ceiling_bytes)) {}

std::uint64_t MemoryBudget::ceiling_bytes() const noexcept { return state_->ceiling; }
std::uint64_t MemoryBudget::used_bytes() const noexcept { return state_->used.load(std::memory_order_relaxed); }

bool MemoryBudget::take(std::uint64_t bytes) const noexcept {
  std::uint64_t used = used_bytes();
  do {
    if (bytes > state_->ceiling - used) return false;
  } while (!state_->used.compare_exchange_weak(used, used + bytes, std::memory_order_relaxed));
  return true;
}

void MemoryBudget::require_possible(std::uint64_t bytes) const {
  if (bytes <= state_->ceiling) return;
  refuse(fmt::format("{} bytes are more than the memory budget's ceiling of {} bytes.", bytes, state_->ceiling));
}

void MemoryBudget::refuse_for_now(std::uint64_t bytes) const {
  throw Error(ErrorCode::busy,
              fmt::format("{} bytes do not fit in the memory budget now: {} of its {} bytes are in use.", bytes,
                          used_bytes(), state_->ceiling));
}

MemoryReservation MemoryBudget::reserve_now(std::uint64_t bytes) const {
  require_possible(bytes);
  if (!take(bytes)) refuse_for_now(bytes);
  return {state_, bytes};
}

MemoryReservation MemoryBudget::reserve(std::uint64_t bytes) const {
  require_possible(bytes);
  if (take(bytes)) return {state_, bytes};
  reclaim();
  while (!take(bytes)) {
    if (evict_idle(*this)) continue;
    if (take(bytes)) break;  // What others have given back meanwhile.
    refuse_for_now(bytes);
  }
  return {state_, bytes};
}

}  // namespace weft
