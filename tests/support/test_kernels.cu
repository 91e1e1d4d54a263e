// The kernels of support/test_kernels.h.

#include <cstdint>

namespace {

constexpr std::uint64_t kFnvPrime = 1099511628211u;
constexpr int kSpinReads = 1'000'000;

__device__ std::uint64_t thread_of_grid() { return std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; }

__device__ std::uint64_t now() {
  std::uint64_t nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
  return nanoseconds;
}

}  // namespace

extern "C" __global__ void increment(std::uint32_t* x, std::uint32_t amount) { x[0] += amount; }

extern "C" __global__ void count_up(std::uint32_t* counter, std::uint64_t adds) {
  if (thread_of_grid() < adds) atomicAdd(counter, 1);
}

extern "C" __global__ void xor_bytes(const std::uint8_t* x, std::uint8_t* y, std::uint64_t count, std::uint8_t mask) {
  const std::uint64_t i = thread_of_grid();
  if (i < count) y[i] = x[i] ^ mask;
}

extern "C" __global__ void slow_copy(const std::uint32_t* x, std::uint32_t* y, std::uint64_t count,
                                     std::uint64_t nanoseconds) {
  const std::uint64_t start = now();
  while (now() - start < nanoseconds) {
  }
  const std::uint64_t i = thread_of_grid();
  if (i < count) y[i] = x[i];
}

extern "C" __global__ void append(const std::uint8_t* x, std::uint8_t* cache, std::uint32_t* length, std::int64_t* d,
                                  std::uint32_t bytes) {
  for (std::uint32_t i = 0; i < bytes; ++i) cache[std::uint64_t{length[0]} * bytes + i] = x[i];
  length[0] += 1;
  std::uint64_t value = 0;
  for (std::uint64_t i = 0; i < std::uint64_t{length[0]} * bytes; ++i) value = (value ^ cache[i]) * kFnvPrime;
  d[0] = static_cast<std::int64_t>(value);
}

extern "C" __global__ void spin_until_zero(std::uint32_t* counter, std::uint32_t* y) {
  for (int read = 0; read < kSpinReads && *static_cast<volatile std::uint32_t*>(counter) != 0;) ++read;
  counter[0] += 1;
  y[0] = counter[0];
}

extern "C" __global__ void digest(const std::uint8_t* x, std::int64_t* d, std::uint64_t count, std::uint64_t salt) {
  std::uint64_t value = (static_cast<std::uint64_t>(d[0]) ^ salt) * kFnvPrime;
  for (std::uint64_t i = 0; i < count; ++i) value = (value ^ x[i]) * kFnvPrime;
  d[0] = static_cast<std::int64_t>(value);
}

extern "C" __global__ void shared_words(std::uint32_t* y, std::uint32_t words) {
  extern __shared__ std::uint32_t dynamic[];
  __shared__ std::uint32_t fixed[4];
  for (std::uint32_t i = threadIdx.x; i < words; i += blockDim.x) dynamic[i] = i + 1;
  if (threadIdx.x < 4) fixed[threadIdx.x] = threadIdx.x + 1;
  __syncthreads();
  if (threadIdx.x != 0) return;
  const std::uint32_t sum = fixed[0] + fixed[1] + fixed[2] + fixed[3];
  y[0] = words == 0 ? sum : sum + dynamic[0] + dynamic[words - 1];
}

extern "C" __global__ void unpack(const std::uint8_t* packed, const std::uint32_t* extents, std::uint8_t* y,
                                  std::uint32_t bytes, std::uint32_t records, std::uint32_t width) {
  const std::uint64_t record = thread_of_grid();
  if (record >= records) return;
  const std::uint64_t begin = extents[2 * record];
  const std::uint64_t size = extents[2 * record + 1];
  const bool fits = begin + size <= bytes && size <= width;
  for (std::uint64_t i = 0; i < width; ++i) y[record * width + i] = fits && i < size ? packed[begin + i] : 0;
}
