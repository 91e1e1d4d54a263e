#include "cuda/device_bytes.h"

#include <thrust/count.h>
#include <thrust/execution_policy.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/tabulate.h>

namespace weft::test {

namespace {

struct Pattern {
  std::uint64_t seed;
  __host__ __device__ std::uint8_t operator()(std::uint64_t i) const {
    std::uint64_t mixed = (i + seed) * 0x9E3779B97F4A7C15ull;
    mixed ^= mixed >> 32;
    return static_cast<std::uint8_t>(mixed & 0x7F);
  }
};

struct DiffersFromPattern {
  const std::uint8_t* bytes;
  Pattern pattern;
  __device__ bool operator()(std::uint64_t i) const { return bytes[i] != pattern(i); }
};

struct DiffersFromValue {
  const std::uint8_t* bytes;
  std::uint8_t value;
  __device__ bool operator()(std::uint64_t i) const { return bytes[i] != value; }
};

template <class Differs>
std::uint64_t count(std::uint64_t first, std::uint64_t bytes, Differs differs) {
  const thrust::counting_iterator<std::uint64_t> begin(first);
  return static_cast<std::uint64_t>(thrust::count_if(thrust::device, begin, begin + bytes, differs));
}

}  // namespace

void write_pattern(std::uint64_t address, std::uint64_t bytes, std::uint64_t seed) {
  auto* begin = reinterpret_cast<std::uint8_t*>(address);
  thrust::tabulate(thrust::device, begin, begin + bytes, Pattern{seed});
}

std::uint64_t pattern_mismatches(std::uint64_t address, std::uint64_t first, std::uint64_t bytes, std::uint64_t seed) {
  return count(first, bytes, DiffersFromPattern{reinterpret_cast<const std::uint8_t*>(address), Pattern{seed}});
}

std::uint64_t value_mismatches(std::uint64_t address, std::uint64_t bytes, std::uint8_t value) {
  return count(0, bytes, DiffersFromValue{reinterpret_cast<const std::uint8_t*>(address), value});
}

}  // namespace weft::test
