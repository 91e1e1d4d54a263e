#include "support/allocation_count.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

// In a source of its own: where the compiler sees both ends of an allocation, it takes `free` for a mismatch.

namespace weft::test {

thread_local AllocationCount allocation_count;

namespace {

std::atomic<std::int64_t> blocks{0};

/// Null when there is no memory.
void* try_allocate(std::size_t bytes, std::size_t alignment) noexcept {
  ++(allocation_count.in_device_call ? allocation_count.inside : allocation_count.outside);
  void* memory = nullptr;
  if (posix_memalign(&memory, std::max(alignment, sizeof(void*)), std::max<std::size_t>(bytes, 1)) != 0) return nullptr;
  blocks.fetch_add(1, std::memory_order_relaxed);
  return memory;
}

void* allocate(std::size_t bytes, std::size_t alignment) {
  void* memory = try_allocate(bytes, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory) noexcept {
  if (memory == nullptr) return;
  blocks.fetch_sub(1, std::memory_order_relaxed);
  std::free(memory);
}

}  // namespace

std::int64_t live_blocks() noexcept { return blocks.load(std::memory_order_relaxed); }

}  // namespace weft::test

void* operator new(std::size_t bytes) { return weft::test::allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return weft::test::allocate(bytes, static_cast<std::size_t>(alignment));
}
// Part of the set: the library's stable_sort allocates by it.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return weft::test::try_allocate(bytes, __STDCPP_DEFAULT_NEW_ALIGNMENT__);
}
void operator delete(void* memory) noexcept { weft::test::release(memory); }
void operator delete(void* memory, std::size_t) noexcept { weft::test::release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { weft::test::release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { weft::test::release(memory); }
