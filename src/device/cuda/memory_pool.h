#pragma once

#include "device/cuda/primary_context.h"

namespace weft::cuda {

/// weft's own stream-ordered pool on a GPU. Never the device's default pool: its other users would see weft's settings.
class MemoryPool {
 public:
  explicit MemoryPool(PrimaryContext& context);
  MemoryPool(const MemoryPool&) = delete;
  MemoryPool& operator=(const MemoryPool&) = delete;
  /// Returns at once; memory not freed yet goes back to the driver when it is.
  ~MemoryPool();

  /// Memory for work that follows on `stream`, which does not wait for others' work unless there is no memory else.
  DeviceStatus allocate(CUstream stream, std::uint64_t bytes, CUdeviceptr& address) noexcept;
  DeviceStatus trim(std::uint64_t keep_bytes) noexcept;
  /// CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT or CU_MEMPOOL_ATTR_USED_MEM_CURRENT.
  DeviceStatus attribute(CUmemPool_attribute which, std::uint64_t& bytes) noexcept;

 private:
  DeviceStatus allow_waits(bool allowed) noexcept;

  PrimaryContext& context_;
  CUmemoryPool pool_ = nullptr;
};

}  // namespace weft::cuda
