#include "refusal.h"
#include <weft/unit.h>

#include <spdlog/fmt/fmt.h>

namespace weft::detail {

Unit::~Unit() = default;

void Unit::hold(MemoryReservation charge) noexcept {
  const std::lock_guard lock(mutex_);
  bytes_.store(charge.bytes(), std::memory_order_relaxed);
  charge_ = std::move(charge);
}

void Unit::resize(std::uint64_t bytes) {
  if (bytes == 0) refuse("A unit is made 0 bytes large; it holds at least 1.");
  if (this->bytes() == 0) refuse("The unit's allocations are charged one by one; it has no charge of its own.");
  const std::uint64_t ceiling = budgets_.front().ceiling_bytes();
  if (bytes > ceiling)
    refuse(fmt::format("{} bytes are more than the memory budget's ceiling of {} bytes.", bytes, ceiling));
  MemoryReservation more;
  MemoryReservation less;
  std::unique_lock lock(mutex_);
  while (charge_.bytes() + more.bytes() < bytes) {
    const std::uint64_t missing = bytes - charge_.bytes() - more.bytes();
    // Under no lock: it may evict other units, and this one may be resized meanwhile.
    lock.unlock();
    more.merge(budgets_.front().reserve(missing));
    lock.lock();
  }
  charge_.merge(std::move(more));
  less = charge_.split(charge_.bytes() - bytes);
  bytes_.store(bytes, std::memory_order_relaxed);
}

}  // namespace weft::detail
