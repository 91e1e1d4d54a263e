#include "foreign_memory.h"

#include "device/process_state.h"
#include "refusal.h"
#include <weft/plan/arena.h>

#include <spdlog/fmt/fmt.h>

namespace weft {

ForeignMemory::~ForeignMemory() {
  if (release_ && process_state() == ProcessState::running) release_();
}

void require_device_range(DeviceApi& api, DeviceAddress address, std::uint64_t bytes) {
  if (address % kArenaAlignment != 0) {
    refuse(
        fmt::format("The memory starts at {:#x}; weft's storage starts at multiples of {}.", address, kArenaAlignment));
  }
  AddressInfo info;
  check(api.describe_address(address, info), "describe an address");
  if (info.kind != AddressInfo::Kind::device)
    refuse(fmt::format("The address {:#x} is no memory of the device.", address));
  const std::uint64_t room = info.bytes - (address - info.base);
  if (bytes > room) {
    refuse(fmt::format("The memory at {:#x} is given as {} bytes; its allocation has {} from there on.", address, bytes,
                       room));
  }
}

}  // namespace weft
