#include "device/host/host_kernel.h"

#include "device/host/host_status.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weft {

namespace {

std::vector<std::uint32_t> parameter_sizes(const KernelSpec& spec) {
  if (spec.host) return spec.host->parameter_sizes;
  std::vector<std::uint32_t> sizes;
  for (const Parameter& parameter : spec.parameters) sizes.push_back(parameter.size);
  return sizes;
}

std::uint32_t natural_alignment(std::uint32_t size) noexcept {
  return size == 0 ? 1u : std::min(8u, 1u << std::countr_zero(size));
}

bool is_positive(Dim3 dim) noexcept { return dim.x > 0 && dim.y > 0 && dim.z > 0; }

bool fits(Dim3 dim, Dim3 limit) noexcept { return dim.x <= limit.x && dim.y <= limit.y && dim.z <= limit.z; }

std::uint64_t volume(Dim3 dim) noexcept {
  return std::uint64_t{dim.x} * dim.y * dim.z;  // of a block that fits its axes: below 2^26
}

std::uint32_t dynamic_shared_limit(const LoadedHostKernel& kernel, const DeviceLimits& limits) noexcept {
  const std::uint32_t fixed = kernel.compiled.static_shared_bytes;
  const std::uint32_t by_default = limits.default_shared_bytes > fixed ? limits.default_shared_bytes - fixed : 0;
  return std::max(by_default, kernel.raised_dynamic_shared_bytes);
}

// Of a multiprocessor of sm_90.
constexpr std::uint64_t kResidentThreads = 2048;
constexpr std::uint64_t kResidentBlocks = 32;
constexpr std::uint64_t kSharedBytes = 228 << 10;
constexpr std::uint64_t kReservedSharedBytes = 1 << 10;  // By the system, of each block.
constexpr std::uint64_t kWarp = 32;

}  // namespace

CompiledKernel host_layout(const KernelSpec& spec) {
  CompiledKernel compiled;
  std::uint32_t end = 0;
  std::vector<std::uint32_t> sizes = parameter_sizes(spec);
  sizes.insert(sizes.end(), spec.hidden_pointers, sizeof(DeviceAddress));
  for (const std::uint32_t size : sizes) {
    const std::uint32_t alignment = natural_alignment(size);
    const std::uint32_t offset = (end + alignment - 1) / alignment * alignment;
    compiled.parameters.push_back({.offset = offset, .size = size});
    end = offset + size;
  }
  const HostKernel bounds = spec.host.value_or(HostKernel{});
  compiled.max_threads_per_block = bounds.max_threads_per_block;
  compiled.static_shared_bytes = bounds.static_shared_bytes;
  return compiled;
}

DeviceStatus check_launch(const KernelNode& node, const LoadedHostKernel& kernel, const DeviceLimits& limits) noexcept {
  if (!is_positive(node.grid)) return refused("a kernel node's grid has an empty axis");
  if (!fits(node.grid, limits.max_grid)) return refused("a kernel node's grid passes an axis limit");
  if (!is_positive(node.cluster)) return refused("a kernel node's cluster has an empty axis");
  if (node.grid.x % node.cluster.x != 0 || node.grid.y % node.cluster.y != 0 || node.grid.z % node.cluster.z != 0) {
    return refused("a kernel node's grid is not made of whole clusters");
  }
  if (!is_positive(node.block)) return refused("a kernel node's block has an empty axis");
  if (!fits(node.block, limits.max_block)) return refused("a kernel node's block passes an axis limit");
  const std::uint32_t bound = std::min(limits.max_threads_per_block, kernel.compiled.max_threads_per_block);
  if (volume(node.block) > bound) return refused("a kernel node's block passes the kernel's launch bounds");
  if (node.dynamic_shared_bytes > dynamic_shared_limit(kernel, limits)) {
    return refused("a kernel node's dynamic shared memory passes what the kernel was raised to");
  }
  if (node.parameters.size() != kernel.compiled.parameter_bytes()) {
    return refused("a kernel node's parameter block has another size than the kernel's");
  }
  return {};
}

std::uint64_t max_resident_blocks(const KernelNode& launch, const LoadedHostKernel& kernel,
                                  const DeviceLimits& limits) noexcept {
  const std::uint64_t threads = (volume(launch.block) + kWarp - 1) / kWarp * kWarp;
  const std::uint64_t shared =
      std::uint64_t{launch.dynamic_shared_bytes} + kernel.compiled.static_shared_bytes + kReservedSharedBytes;
  const std::uint64_t blocks =
      std::min({kResidentBlocks, kResidentThreads / std::max(threads, kWarp), kSharedBytes / shared}) *
      limits.multiprocessors;
  const std::uint64_t cluster = volume(launch.cluster);
  return blocks / cluster * cluster;
}

std::vector<DeviceAddress> bound_addresses(const KernelNode& node, const LoadedHostKernel& kernel) {
  std::vector<DeviceAddress> addresses;
  const std::size_t count = std::min(kernel.parameters.size(), kernel.compiled.parameters.size());
  for (std::size_t i = 0; i < count; ++i) {
    const CompiledKernel::ParameterLayout& layout = kernel.compiled.parameters[i];
    if (kernel.parameters[i].kind != ParameterKind::binding || layout.size != sizeof(DeviceAddress)) continue;
    DeviceAddress address = 0;
    std::memcpy(&address, node.parameters.data() + layout.offset, sizeof(address));
    addresses.push_back(address);
  }
  return addresses;
}

void run_kernel(const KernelNode& node, const LoadedHostKernel& kernel) {
  std::vector<const std::byte*> parameters;
  for (const CompiledKernel::ParameterLayout& layout : kernel.compiled.parameters) {
    parameters.push_back(node.parameters.data() + layout.offset);
  }
  kernel.run({.grid = {node.grid.x, node.grid.y, node.grid.z},
              .block = node.block,
              .dynamic_shared_bytes = node.dynamic_shared_bytes,
              .parameters = parameters});
}

}  // namespace weft
