#include "device/own_kernels.h"

#include "device/own_kernels_image.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <span>
#include <utility>

namespace weft::own {

namespace {

constexpr std::string_view kFill = "weft_fill";
constexpr std::string_view kCopy = "weft_copy";
constexpr std::string_view kComplete = "weft_complete";
constexpr std::string_view kCopyComplete = "weft_copy_complete";
constexpr std::string_view kCopyTable = "weft_copy_table";
constexpr std::string_view kCopyTableComplete = "weft_copy_table_complete";

constexpr std::uint32_t kThreads = 256;
// Sixteen bytes a thread, so that 4 KiB is one block; beyond the cap a block takes several such pieces.
constexpr std::uint64_t kBytesPerBlock = kThreads * std::uint64_t{16};
constexpr std::uint64_t kMaxBlocks = 1024;
// Entries beyond the grid's y limit are taken in turns.
constexpr std::uint32_t kMaxTableRows = 65535;
// An entry as a block shares it: two pointers and a size.
constexpr std::uint32_t kSharedEntryBytes = 24;

Parameter pointer(std::string name, Access access, std::uint32_t element_size) {
  return {.kind = ParameterKind::binding,
          .size = sizeof(DeviceAddress),
          .access = access,
          .element_size = element_size,
          .name = std::move(name)};
}

Parameter scalar(std::string name, std::uint32_t size) {
  return {.kind = ParameterKind::scalar, .size = size, .element_size = size, .name = std::move(name)};
}

KernelSpec spec(std::string_view symbol, std::uint32_t threads, std::vector<Parameter> parameters,
                void (*run)(const HostLaunch&), std::uint32_t static_shared_bytes = 0) {
  HostKernel host{
      .run = run, .parameter_sizes = {}, .max_threads_per_block = threads, .static_shared_bytes = static_shared_bytes};
  for (const Parameter& parameter : parameters) host.parameter_sizes.push_back(parameter.size);
  return {.image = {own_kernels_image(), "weft's own kernels"},
          .symbol = std::string(symbol),
          .block = {threads, 1, 1},
          .parameters = std::move(parameters),
          .programmatic = true,
          .host = std::move(host)};
}

void host_fill(const HostLaunch& launch) {
  std::memset(launch.get<std::byte*>(0), launch.get<std::uint8_t>(2), launch.get<std::uint64_t>(1));
}

void host_copy(const HostLaunch& launch) {
  std::memcpy(launch.get<std::byte*>(0), launch.get<const std::byte*>(1), launch.get<std::uint64_t>(2));
}

void complete(std::uint64_t* counter, std::uint64_t* word) {
  *counter += 1;
  std::atomic_ref(*word).store(*counter, std::memory_order_release);
}

void host_complete(const HostLaunch& launch) { complete(launch.get<std::uint64_t*>(0), launch.get<std::uint64_t*>(1)); }

void host_copy_complete(const HostLaunch& launch) {
  host_copy(launch);
  // One thread computes all blocks: the count of arrivals is back at zero, as it was.
  *launch.get<std::uint32_t*>(4) = 0;
  complete(launch.get<std::uint64_t*>(3), launch.get<std::uint64_t*>(5));
}

void host_copy_table(const HostLaunch& launch) {
  for (const CopyEntry& entry : std::span(launch.get<const CopyEntry*>(0), launch.get<std::uint32_t>(1))) {
    if (entry.destination == 0 || entry.source == 0) continue;
    std::memcpy(reinterpret_cast<void*>(entry.destination), reinterpret_cast<const void*>(entry.source), entry.bytes);
  }
}

void host_copy_table_complete(const HostLaunch& launch) {
  host_copy_table(launch);
  *launch.get<std::uint32_t*>(3) = 0;  // As in host_copy_complete.
  complete(launch.get<std::uint64_t*>(2), launch.get<std::uint64_t*>(4));
}

}  // namespace

KernelSpec fill_spec() {
  return spec(
      kFill, kThreads,
      {pointer("dst", Access::write, 1), scalar("bytes", sizeof(std::uint64_t)), scalar("value", sizeof(std::uint8_t))},
      host_fill);
}

KernelSpec copy_spec() {
  return spec(
      kCopy, kThreads,
      {pointer("dst", Access::write, 1), pointer("src", Access::read, 1), scalar("bytes", sizeof(std::uint64_t))},
      host_copy);
}

KernelSpec complete_spec() {
  return spec(kComplete, 1,
              {pointer("counter", Access::read_write, sizeof(std::uint64_t)),
               pointer("word", Access::write, sizeof(std::uint64_t))},
              host_complete);
}

KernelSpec copy_complete_spec() {
  return spec(kCopyComplete, kThreads,
              {pointer("dst", Access::write, 1), pointer("src", Access::read, 1),
               scalar("bytes", sizeof(std::uint64_t)), pointer("counter", Access::read_write, sizeof(std::uint64_t)),
               pointer("arrivals", Access::read_write, sizeof(std::uint32_t)),
               pointer("word", Access::write, sizeof(std::uint64_t))},
              host_copy_complete);
}

KernelSpec copy_table_spec() {
  return spec(kCopyTable, kThreads,
              {pointer("entries", Access::read, sizeof(CopyEntry)), scalar("count", sizeof(std::uint32_t))},
              host_copy_table, kSharedEntryBytes);
}

KernelSpec copy_table_complete_spec() {
  return spec(kCopyTableComplete, kThreads,
              {pointer("entries", Access::read, sizeof(CopyEntry)), scalar("count", sizeof(std::uint32_t)),
               pointer("counter", Access::read_write, sizeof(std::uint64_t)),
               pointer("arrivals", Access::read_write, sizeof(std::uint32_t)),
               pointer("word", Access::write, sizeof(std::uint64_t))},
              host_copy_table_complete, kSharedEntryBytes);
}

bool is_own_symbol(std::string_view symbol) noexcept {
  constexpr std::array kSymbols{kFill, kCopy, kComplete, kCopyComplete, kCopyTable, kCopyTableComplete};
  return std::ranges::find(kSymbols, symbol) != kSymbols.end();
}

Dim3 copy_grid(std::uint64_t bytes) noexcept {
  const std::uint64_t blocks = bytes / kBytesPerBlock + (bytes % kBytesPerBlock != 0 ? 1 : 0);
  return {static_cast<std::uint32_t>(std::clamp<std::uint64_t>(blocks, 1, kMaxBlocks)), 1, 1};
}

Dim3 copy_table_grid(std::uint64_t largest_bytes, std::uint32_t count) noexcept {
  return {copy_grid(largest_bytes).x, std::clamp<std::uint32_t>(count, 1, kMaxTableRows), 1};
}

}  // namespace weft::own
