// weft's own kernels; their specs and host references stand in device/own_kernels.h.
//
// No pointer is `const __restrict__` and nothing is read through the read-only cache: a kernel may start while the one
// before it still writes what it reads.

#include "device/copy_entry.h"
#include "device/cuda/dependencies.h"

#include <cuda/atomic>

#include <cstddef>
#include <cstdint>

namespace {

using weft::cuda::wait_for_dependencies;
using weft::own::CopyEntry;
using Vector = uint4;
constexpr std::uint64_t kVectorBytes = sizeof(Vector);

/// This thread's place among the threads of its row of the grid. Only the kernels of copy tables have more rows than
/// one, and blocks are one-dimensional.
struct GridThread {
  std::uint64_t index;
  std::uint64_t count;
};

__device__ GridThread grid_thread() {
  return {static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x,
          static_cast<std::uint64_t>(gridDim.x) * blockDim.x};
}

/// A range cut into bytes before the first vector, whole aligned vectors, and bytes after the last.
struct Split {
  std::uint64_t head;
  std::uint64_t vectors;
};

__device__ std::uint64_t misalignment(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kVectorBytes;
}

__device__ Split split_at_vectors(const std::byte* start, std::uint64_t bytes) {
  const std::uint64_t to_vector = (kVectorBytes - misalignment(start)) % kVectorBytes;
  const std::uint64_t head = to_vector < bytes ? to_vector : bytes;
  return {head, (bytes - head) / kVectorBytes};
}

__device__ void copy_bytes(std::byte* dst, const std::byte* src, std::uint64_t bytes) {
  const GridThread self = grid_thread();
  // Vectors need both sides aligned at once; else all is head.
  const Split split = misalignment(dst) == misalignment(src) ? split_at_vectors(dst, bytes) : Split{bytes, 0};
  const std::uint64_t tail = split.head + split.vectors * kVectorBytes;

  auto* dst_vectors = reinterpret_cast<Vector*>(dst + split.head);
  const auto* src_vectors = reinterpret_cast<const Vector*>(src + split.head);
  for (std::uint64_t i = self.index; i < split.vectors; i += self.count) dst_vectors[i] = src_vectors[i];
  for (std::uint64_t i = self.index; i < split.head; i += self.count) dst[i] = src[i];
  for (std::uint64_t i = tail + self.index; i < bytes; i += self.count) dst[i] = src[i];
}

/// Row y of the grid copies entries y, y + rows, ... One thread of a block reads the entry for all: it lies behind the
/// bus.
__device__ void copy_table(const CopyEntry* entries, std::uint32_t count) {
  __shared__ std::byte* destination;
  __shared__ const std::byte* source;
  __shared__ std::uint64_t bytes;
  for (std::uint32_t i = blockIdx.y; i < count; i += gridDim.y) {
    if (threadIdx.x == 0) {
      const CopyEntry entry = entries[i];
      destination = reinterpret_cast<std::byte*>(entry.destination);
      source = reinterpret_cast<const std::byte*>(entry.source);
      bytes = entry.bytes;
    }
    __syncthreads();
    if (destination != nullptr && source != nullptr) copy_bytes(destination, source, bytes);
    __syncthreads();  // The next turn overwrites what the threads read.
  }
}

/// Called by one thread, whose earlier work happens after all that the request wrote.
///
/// A release is cumulative: a host thread that loads this n with acquire also sees every write that this thread had
/// seen or that happened before what it had seen, by whichever thread of the device. System scope, because the host
/// reads it.
__device__ void publish(std::uint64_t* counter, std::uint64_t* word, std::uint64_t n) {
  *counter = n;
  ::cuda::atomic_ref<std::uint64_t, ::cuda::thread_scope_system>(*word).store(n, ::cuda::memory_order_release);
}

/// The number that this run's completion publishes. Read before the copy, which hides the way to it.
__device__ std::uint64_t next_completion(const std::uint64_t* counter) { return threadIdx.x == 0 ? *counter + 1 : 0; }

/// Called by all threads after their copies: the last block to come publishes `n`.
///
/// Why the host that sees n sees every copied byte, in the terms of the PTX memory model:
/// 1. A thread's stores happen before its block's barrier, and the barrier before what thread 0 does next.
/// 2. Thread 0 of each block arrives by a read-modify-write with release and acquire at device scope. All arrivals are
///    on one word, so each reads from the one before, and the last block's arrival synchronizes with every earlier one.
///    A block that is alone has nobody to meet.
/// 3. Thus every store of every block happens before the last block's release store, which carries them to the host
///    (cumulativity). Scope matters for each pair that synchronizes, not for the stores carried: two blocks of one
///    device meet at device scope, device and host at system scope. No block but the last needs the dearer system
///    fence.
__device__ void publish_by_last_block(std::uint64_t* counter, std::uint32_t* arrivals, std::uint64_t* word,
                                      std::uint64_t n) {
  __syncthreads();
  if (threadIdx.x != 0) return;
  const std::uint32_t blocks = gridDim.x * gridDim.y;
  if (blocks > 1) {
    ::cuda::atomic_ref<std::uint32_t, ::cuda::thread_scope_device> arrived(*arrivals);
    if (arrived.fetch_add(1, ::cuda::memory_order_acq_rel) + 1 != blocks) return;
    arrived.store(0, ::cuda::memory_order_relaxed);  // The next launch starts after this one.
  }
  publish(counter, word, n);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(256) weft_fill(std::byte* dst, std::uint64_t bytes, std::uint8_t value) {
  wait_for_dependencies();
  const GridThread self = grid_thread();
  const Split split = split_at_vectors(dst, bytes);
  const std::uint64_t tail = split.head + split.vectors * kVectorBytes;
  const std::uint32_t word = value * 0x01010101u;
  const Vector vector = make_uint4(word, word, word, word);

  auto* vectors = reinterpret_cast<Vector*>(dst + split.head);
  for (std::uint64_t i = self.index; i < split.vectors; i += self.count) vectors[i] = vector;
  for (std::uint64_t i = self.index; i < split.head; i += self.count) dst[i] = std::byte{value};
  for (std::uint64_t i = tail + self.index; i < bytes; i += self.count) dst[i] = std::byte{value};
}

extern "C" __global__ void __launch_bounds__(256) weft_copy(std::byte* dst, const std::byte* src, std::uint64_t bytes) {
  wait_for_dependencies();
  copy_bytes(dst, src, bytes);
}

// The node depends on every sink: what other nodes wrote happens before its wait ends.
extern "C" __global__ void __launch_bounds__(1) weft_complete(std::uint64_t* counter, std::uint64_t* word) {
  wait_for_dependencies();
  publish(counter, word, *counter + 1);
}

extern "C" __global__ void __launch_bounds__(256)
    weft_copy_complete(std::byte* dst, const std::byte* src, std::uint64_t bytes, std::uint64_t* counter,
                       std::uint32_t* arrivals, std::uint64_t* word) {
  wait_for_dependencies();
  const std::uint64_t n = next_completion(counter);
  copy_bytes(dst, src, bytes);
  publish_by_last_block(counter, arrivals, word, n);
}

extern "C" __global__ void __launch_bounds__(256) weft_copy_table(const CopyEntry* entries, std::uint32_t count) {
  wait_for_dependencies();
  copy_table(entries, count);
}

extern "C" __global__ void __launch_bounds__(256)
    weft_copy_table_complete(const CopyEntry* entries, std::uint32_t count, std::uint64_t* counter,
                             std::uint32_t* arrivals, std::uint64_t* word) {
  wait_for_dependencies();
  const std::uint64_t n = next_completion(counter);
  copy_table(entries, count);
  publish_by_last_block(counter, arrivals, word, n);
}
