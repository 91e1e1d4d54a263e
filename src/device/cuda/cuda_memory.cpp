#include "device/cuda/cuda_device_impl.h"
#include "device/cuda/native_handle.h"

#include <array>
#include <cstring>

namespace weft::cuda {
namespace {

// The driver's own calls disagree on zero bytes: some refuse, some return null, some succeed.
constexpr DeviceStatus kNoBytes{StatusCode::invalid, 0, "an allocation of 0 bytes is asked for"};

}  // namespace

DeviceStatus CudaDevice::memory_info(MemoryInfo& info) noexcept {
  MemoryInfo found;
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  const DriverScope scope = context_.enter();
  if (const DeviceStatus status = context_.call(driver().MemGetInfo, &free_bytes, &total_bytes); !status.ok()) {
    return status;
  }
  found.free_bytes = free_bytes;
  found.total_bytes = total_bytes;
  if (const DeviceStatus status = pool_.attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, found.pool_reserved_bytes);
      !status.ok()) {
    return status;
  }
  if (const DeviceStatus status = pool_.attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT, found.pool_used_bytes);
      !status.ok()) {
    return status;
  }
  info = found;
  return {};
}

DeviceStatus CudaDevice::describe_address(DeviceAddress address, AddressInfo& info) noexcept {
  // The plural form answers zeros for an address that the driver does not know; the singular one fails.
  unsigned int type = 0;
  int ordinal = 0;
  CUdeviceptr base = 0;
  std::size_t bytes = 0;
  std::array attributes = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                           CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  std::array<void*, attributes.size()> values = {&type, &ordinal, &base, &bytes};
  const DriverScope scope = context_.enter();
  const DeviceStatus status = context_.call(driver().PointerGetAttributes, static_cast<unsigned int>(attributes.size()),
                                            attributes.data(), values.data(), static_cast<CUdeviceptr>(address));
  if (!status.ok()) return status;

  info = {};
  const bool is_here = type == CU_MEMORYTYPE_DEVICE && ordinal == context_.device();
  if (!is_here && type != CU_MEMORYTYPE_HOST) return {};
  info.kind = type == CU_MEMORYTYPE_HOST ? AddressInfo::Kind::pinned : AddressInfo::Kind::device;
  info.base = base;
  info.bytes = bytes;
  return {};
}

DeviceStatus CudaDevice::allocate(StreamHandle stream, std::uint64_t bytes, DeviceAddress& address) noexcept {
  if (bytes == 0) return kNoBytes;
  CUdeviceptr memory = 0;
  const DeviceStatus status = pool_.allocate(native<CUstream>(stream), bytes, memory);
  if (status.ok()) address = memory;
  return status;
}

DeviceStatus CudaDevice::free(StreamHandle stream, DeviceAddress address) noexcept {
  const DriverScope scope = context_.enter();
  return context_.call(driver().MemFreeAsync, static_cast<CUdeviceptr>(address), native<CUstream>(stream));
}

DeviceStatus CudaDevice::trim(std::uint64_t keep_bytes) noexcept { return pool_.trim(keep_bytes); }

DeviceStatus CudaDevice::allocate_pinned(std::uint64_t bytes, PinnedMemory& memory) noexcept {
  if (bytes == 0) return kNoBytes;
  void* host = nullptr;
  const DriverScope scope = context_.enter();
  const DeviceStatus status =
      context_.call(driver().MemHostAlloc, &host, std::size_t{bytes},
                    static_cast<unsigned int>(CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP));
  if (!status.ok()) return status;
  std::memset(host, 0, bytes);
  // One address space: the device uses the host's address.
  memory = {static_cast<std::byte*>(host), reinterpret_cast<std::uintptr_t>(host)};
  return {};
}

DeviceStatus CudaDevice::free_pinned(std::byte* host) noexcept {
  const DriverScope scope = context_.enter();
  return context_.call(driver().MemFreeHost, static_cast<void*>(host));
}

DeviceStatus CudaDevice::fill(StreamHandle stream, const FillNode& fill) noexcept {
  const DriverScope scope = context_.enter();
  return context_.call(driver().MemsetD8Async, static_cast<CUdeviceptr>(fill.destination), fill.value,
                       std::size_t{fill.bytes}, native<CUstream>(stream));
}

DeviceStatus CudaDevice::copy(StreamHandle stream, const CopyNode& copy) noexcept {
  const DriverScope scope = context_.enter();
  return context_.call(driver().MemcpyAsync, static_cast<CUdeviceptr>(copy.destination),
                       static_cast<CUdeviceptr>(copy.source), std::size_t{copy.bytes}, native<CUstream>(stream));
}

}  // namespace weft::cuda
