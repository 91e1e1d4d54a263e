#include "allocation_domain.h"

#include "reclaim.h"
#include "refusal.h"
#include <weft/error.h>
#include <weft/plan/arena.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <utility>

namespace weft {

void MemoryCounter::add(std::uint64_t bytes, std::uint64_t allocations) noexcept {
  const std::uint64_t live = live_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  allocations_.fetch_add(allocations, std::memory_order_relaxed);
  std::uint64_t peak = peak_.load(std::memory_order_relaxed);
  while (peak < live && !peak_.compare_exchange_weak(peak, live, std::memory_order_relaxed)) {
  }
}

void MemoryCounter::subtract(std::uint64_t bytes) noexcept { live_.fetch_sub(bytes, std::memory_order_relaxed); }

MemoryCounters MemoryCounter::snapshot() const noexcept {
  const std::uint64_t live = live_.load(std::memory_order_relaxed);
  return {.live_bytes = live,
          .peak_bytes = std::max(live, peak_.load(std::memory_order_relaxed)),  // Which another thread may yet raise.
          .allocations = allocations_.load(std::memory_order_relaxed)};
}

AllocationDomain::AllocationDomain(std::shared_ptr<DeviceApi> api, Allocator allocator,
                                   std::optional<MemoryBudget> budget)
    : api_(std::move(api)),
      stream_(create_stream(api_)),
      allocator_(std::move(allocator)),
      budget_(std::move(budget)),
      at_most_(Shortage::reclaim) {}

AllocationDomain::AllocationDomain(std::shared_ptr<DeviceApi> api) noexcept
    : api_(std::move(api)), at_most_(Shortage::refuse) {}

MemoryReservation AllocationDomain::charge(std::uint64_t bytes, Shortage shortage) const {
  if (!budget_) return {};
  return shortage == Shortage::reclaim ? budget_->reserve(bytes) : budget_->reserve_now(bytes);
}

template <class Call>
DeviceStatus AllocationDomain::relieved(Shortage shortage, Call&& call) {
  const DeviceStatus status = call();
  if (status.code != StatusCode::out_of_memory || std::max(shortage, at_most_) == Shortage::refuse) return status;
  relieve(*api_);
  return call();
}

PinnedMemory AllocationDomain::allocate_pinned(std::uint64_t bytes, Shortage shortage) {
  PinnedMemory memory;
  check(relieved(shortage, [&] { return api_->allocate_pinned(bytes, memory); }), "allocate pinned memory");
  return memory;
}

DeviceAddress AllocationDomain::allocate(StreamHandle stream, std::uint64_t bytes) {
  if (!allocator_.allocate) {
    DeviceAddress address = 0;
    check(relieved(Shortage::reclaim, [&] { return api_->allocate(stream, bytes, address); }), "allocate memory");
    return address;
  }
  void* memory = allocator_.allocate(bytes, reinterpret_cast<void*>(stream));
  if (memory == nullptr) {
    relieve(*api_);
    memory = allocator_.allocate(bytes, reinterpret_cast<void*>(stream));
  }
  if (memory == nullptr) throw Error(ErrorCode::out_of_memory, "The context's allocator has no memory.");
  const auto address = reinterpret_cast<DeviceAddress>(memory);
  if (address % kArenaAlignment != 0) {
    release(stream, address, bytes);
    refuse(fmt::format("The context's allocator gave the address {:#x}; weft needs multiples of {}.", address,
                       kArenaAlignment));
  }
  AddressInfo info;
  static_cast<void>(api_->describe_address(address, info));
  if (info.kind != AddressInfo::Kind::device) {
    release(stream, address, bytes);
    refuse(fmt::format("The context's allocator gave the address {:#x}, which is no memory of the device.", address));
  }
  return address;
}

void AllocationDomain::release(StreamHandle stream, DeviceAddress address, std::uint64_t bytes) noexcept {
  if (allocator_.release) {
    allocator_.release(reinterpret_cast<void*>(address), bytes, reinterpret_cast<void*>(stream));
  } else {
    log_swallowed(api_->free(stream, address), "free memory");
  }
}

MemoryCharge::MemoryCharge(std::shared_ptr<AllocationDomain> domain, MemoryCounter AllocationDomain::*counter,
                           std::uint64_t bytes, std::uint64_t allocations) noexcept
    : domain_(std::move(domain)), counter_(counter), bytes_(bytes) {
  ((*domain_).*counter_).add(bytes_, allocations);
}

MemoryCharge::MemoryCharge(MemoryCharge&& other) noexcept { *this = std::move(other); }

MemoryCharge& MemoryCharge::operator=(MemoryCharge&& other) noexcept {
  std::swap(domain_, other.domain_);
  std::swap(counter_, other.counter_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

MemoryCharge::~MemoryCharge() {
  if (domain_ != nullptr) ((*domain_).*counter_).subtract(bytes_);
}

}  // namespace weft
