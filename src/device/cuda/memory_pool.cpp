#include "device/cuda/memory_pool.h"

namespace weft::cuda {

MemoryPool::MemoryPool(PrimaryContext& context) : context_(context) {
  const Driver& driver = context.driver();
  CUmemPoolProps properties{};
  properties.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.handleTypes = CU_MEM_HANDLE_TYPE_NONE;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, context.device()};
  const DriverScope scope = context.enter();
  check(context.call(driver.MemPoolCreate, &pool_, &properties), "create a memory pool");

  // The default of 0 gives idle memory back at every synchronization, anybody's, and maps it again for the next arena.
  // It is kept here until trim.
  cuuint64_t threshold = UINT64_MAX;
  DeviceStatus status = context.call(driver.MemPoolSetAttribute, pool_, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
                                     static_cast<void*>(&threshold));
  if (status.ok()) status = allow_waits(false);
  if (!status.ok()) static_cast<void>(context.call(driver.MemPoolDestroy, pool_));
  check(status, "set up its memory pool");
}

MemoryPool::~MemoryPool() {
  const DriverScope scope = context_.enter();
  static_cast<void>(context_.call(context_.driver().MemPoolDestroy, pool_));
}

DeviceStatus MemoryPool::allocate(CUstream stream, std::uint64_t bytes, CUdeviceptr& address) noexcept {
  const DriverScope scope = context_.enter();
  const auto take = [&] {
    return context_.call(context_.driver().MemAllocFromPoolAsync, &address, bytes, pool_, stream);
  };
  const DeviceStatus status = take();
  if (status.code != StatusCode::out_of_memory) return status;
  // Better a stream that waits for memory which another gives back than none.
  if (!allow_waits(true).ok()) return status;
  const DeviceStatus waiting = take();
  static_cast<void>(allow_waits(false));
  return waiting;
}

// By default the driver makes a stream wait for another's work, so as to reuse what that one frees behind it: new
// memory would come when somebody else's request is done.
DeviceStatus MemoryPool::allow_waits(bool allowed) noexcept {
  int value = allowed ? 1 : 0;
  return context_.call(context_.driver().MemPoolSetAttribute, pool_, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                       static_cast<void*>(&value));
}

DeviceStatus MemoryPool::trim(std::uint64_t keep_bytes) noexcept {
  const DriverScope scope = context_.enter();
  return context_.call(context_.driver().MemPoolTrimTo, pool_, keep_bytes);
}

DeviceStatus MemoryPool::attribute(CUmemPool_attribute which, std::uint64_t& bytes) noexcept {
  cuuint64_t value = 0;
  const DeviceStatus status =
      context_.call(context_.driver().MemPoolGetAttribute, pool_, which, static_cast<void*>(&value));
  if (status.ok()) bytes = value;
  return status;
}

}  // namespace weft::cuda
