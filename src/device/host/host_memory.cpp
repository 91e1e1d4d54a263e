#include "device/host/host_memory.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>

namespace weft {

namespace {

constexpr std::size_t kDeviceAlignment = 256;
constexpr std::size_t kPinnedAlignment = 4096;
// Contents of new memory are undefined. The pattern makes reading them show; beyond this much it would cost more than
// it finds.
constexpr std::uint64_t kPoisonedBytes = std::uint64_t{16} << 20;
constexpr int kPoison = 0xa5;

void* take_from_process(std::uint64_t bytes, AddressInfo::Kind kind) noexcept {
  const bool pinned = kind == AddressInfo::Kind::pinned;
  void* memory = nullptr;
  if (posix_memalign(&memory, pinned ? kPinnedAlignment : kDeviceAlignment, bytes) != 0) return nullptr;
  if (pinned) {
    std::memset(memory, 0, bytes);
  } else {
    std::memset(memory, kPoison, std::min(bytes, kPoisonedBytes));
  }
  return memory;
}

void give_to_process(DeviceAddress base) noexcept {
  std::free(reinterpret_cast<void*>(base));  // NOLINT: a device address of the host device is a pointer
}

}  // namespace

HostMemory::~HostMemory() {
  for (const auto& [base, allocation] : allocations_) give_to_process(base);
}

DeviceAddress HostMemory::allocate(std::uint64_t bytes, AddressInfo::Kind kind) {
  const bool on_device = kind == AddressInfo::Kind::device;
  if (bytes > total_bytes_ - (on_device ? used_bytes_ : 0)) return 0;
  void* memory = take_from_process(bytes, kind);
  if (memory == nullptr) return 0;
  const auto base = reinterpret_cast<DeviceAddress>(memory);
  try {
    allocations_.emplace(base, Allocation{base, bytes, kind, false});
  } catch (const std::bad_alloc&) {
    give_to_process(base);
    return 0;
  }
  if (on_device) {
    used_bytes_ += bytes;
    reserved_bytes_ = std::max(reserved_bytes_, used_bytes_);
  }
  return base;
}

void HostMemory::release(DeviceAddress base) noexcept {
  const auto found = allocations_.find(base);
  if (found == allocations_.end()) return;
  if (found->second.kind == AddressInfo::Kind::device) used_bytes_ -= found->second.bytes;
  allocations_.erase(found);
  give_to_process(base);
}

HostMemory::Allocation* HostMemory::find(DeviceAddress address) noexcept {
  auto next = allocations_.upper_bound(address);
  if (next == allocations_.begin()) return nullptr;
  Allocation& allocation = std::prev(next)->second;
  return address - allocation.base < allocation.bytes ? &allocation : nullptr;
}

bool HostMemory::holds(DeviceAddress address, std::uint64_t bytes) noexcept {
  const Allocation* allocation = find(address);
  return allocation != nullptr && bytes <= allocation->bytes - (address - allocation->base);
}

bool HostMemory::takes_work(DeviceAddress address, std::uint64_t bytes) noexcept {
  return holds(address, bytes) && !find(address)->free_queued;
}

bool HostMemory::touches(DeviceAddress address, std::uint64_t bytes) const noexcept {
  if (bytes == 0) return false;
  const auto next = allocations_.lower_bound(address);
  if (next != allocations_.end() && next->first - address < bytes) return true;
  return next != allocations_.begin() && address - std::prev(next)->first < std::prev(next)->second.bytes;
}

void HostMemory::trim(std::uint64_t keep_bytes) noexcept {
  reserved_bytes_ = std::min(reserved_bytes_, std::max(used_bytes_, keep_bytes));
}

MemoryInfo HostMemory::info() const noexcept {
  return {.free_bytes = total_bytes_ - reserved_bytes_,
          .total_bytes = total_bytes_,
          .pool_reserved_bytes = reserved_bytes_,
          .pool_used_bytes = used_bytes_};
}

std::size_t HostMemory::count(AddressInfo::Kind kind) const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(allocations_, [&](const auto& entry) { return entry.second.kind == kind; }));
}

}  // namespace weft
