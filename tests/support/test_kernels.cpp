#include "support/test_kernels.h"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <string>
#include <thread>
#include <utility>

namespace weft {

std::span<const std::byte> test_kernels_image() noexcept;  // the fatbin of test_kernels.cu

namespace test {

namespace {

constexpr std::uint64_t kFnvPrime = 1099511628211u;
constexpr int kSpinReads = 1'000'000;

KernelSpec spec(std::string symbol, std::uint32_t threads, std::vector<Parameter> parameters,
                void (*run)(const HostLaunch&)) {
  HostKernel host{.run = run, .parameter_sizes = {}};
  for (const Parameter& parameter : parameters) host.parameter_sizes.push_back(parameter.size);
  return {.image = {test_kernels_image(), "test kernels"},
          .symbol = std::move(symbol),
          .block = {threads, 1, 1},
          .parameters = std::move(parameters),
          .launch =
              [threads](std::span<const std::uint64_t> words) {
                return LaunchConfig{.grid = {words.empty() ? 1 : (words[0] + threads - 1) / threads}};
              },
          .host = std::move(host)};
}

void run_increment(const HostLaunch& launch) { *launch.get<std::uint32_t*>(0) += launch.get<std::uint32_t>(1); }

// As many reads and writes, so that a run of another slot on the same counter would show.
void run_count_up(const HostLaunch& launch) {
  auto* counter = launch.get<volatile std::uint32_t*>(0);
  for (std::uint64_t i = 0; i < launch.get<std::uint64_t>(1); ++i) *counter = *counter + 1;
}

void run_xor_bytes(const HostLaunch& launch) {
  const auto* x = launch.get<const std::uint8_t*>(0);
  auto* y = launch.get<std::uint8_t*>(1);
  const auto mask = launch.get<std::uint8_t>(3);
  for (std::uint64_t i = 0; i < launch.get<std::uint64_t>(2); ++i) y[i] = static_cast<std::uint8_t>(x[i] ^ mask);
}

void run_slow_copy(const HostLaunch& launch) {
  std::this_thread::sleep_for(std::chrono::nanoseconds(launch.get<std::uint64_t>(3)));
  std::memcpy(launch.get<std::uint32_t*>(1), launch.get<const std::uint32_t*>(0),
              launch.get<std::uint64_t>(2) * sizeof(std::uint32_t));
}

void run_digest(const HostLaunch& launch) {
  auto* d = launch.get<std::int64_t*>(1);
  *d = digest_of({launch.get<const std::uint8_t*>(0), launch.get<std::uint64_t>(2)}, *d, launch.get<std::uint64_t>(3));
}

void run_shared_words(const HostLaunch& launch) {
  const auto words = launch.get<std::uint32_t>(1);
  *launch.get<std::uint32_t*>(0) = words == 0 ? 10 : words + 11;
}

void run_unpack(const HostLaunch& launch) {
  const auto* packed = launch.get<const std::uint8_t*>(0);
  const auto* extents = launch.get<const std::uint32_t*>(1);
  const auto bytes = launch.get<std::uint32_t>(3);
  const auto width = launch.get<std::uint32_t>(5);
  for (std::uint32_t record = 0; record < launch.get<std::uint32_t>(4); ++record) {
    const std::uint64_t begin = extents[2 * record];
    const std::uint64_t size = extents[2 * record + 1];
    auto* y = launch.get<std::uint8_t*>(2) + std::uint64_t{record} * width;
    std::memset(y, 0, width);
    if (begin + size <= bytes && size <= width) std::memcpy(y, packed + begin, size);
  }
}

void run_append(const HostLaunch& launch) {
  const auto bytes = launch.get<std::uint32_t>(4);
  auto* cache = launch.get<std::uint8_t*>(1);
  std::uint32_t& length = *launch.get<std::uint32_t*>(2);
  std::memcpy(cache + std::uint64_t{length} * bytes, launch.get<const std::uint8_t*>(0), bytes);
  ++length;
  *launch.get<std::int64_t*>(3) = digest_of({cache, std::uint64_t{length} * bytes}, 0, 0);
}

void run_spin_until_zero(const HostLaunch& launch) {
  const volatile std::uint32_t* counter = launch.get<std::uint32_t*>(0);
  for (int read = 0; read < kSpinReads && *counter != 0;) ++read;
  *launch.get<std::uint32_t*>(1) = ++*launch.get<std::uint32_t*>(0);
}

}  // namespace

std::int64_t digest_of(std::span<const std::uint8_t> x, std::int64_t before, std::uint64_t salt) {
  std::uint64_t value = (static_cast<std::uint64_t>(before) ^ salt) * kFnvPrime;
  for (const std::uint8_t byte : x) value = (value ^ byte) * kFnvPrime;
  return static_cast<std::int64_t>(value);
}

KernelSpec increment_spec() {
  return spec("increment", 1, parameters<InOut<std::uint32_t>, std::uint32_t>({"x", "amount"}), run_increment);
}

KernelSpec count_up_spec() {
  return spec("count_up", 256, parameters<InOut<std::uint32_t>, std::uint64_t>({"counter", "adds"}), run_count_up);
}

KernelSpec xor_bytes_spec() {
  return spec("xor_bytes", 256,
              parameters<In<std::uint8_t>, Out<std::uint8_t>, std::uint64_t, std::uint8_t>({"x", "y", "count", "mask"}),
              run_xor_bytes);
}

KernelSpec slow_copy_spec() {
  return spec("slow_copy", 256,
              parameters<In<std::uint32_t>, Out<std::uint32_t>, std::uint64_t, std::uint64_t>(
                  {"x", "y", "count", "nanoseconds"}),
              run_slow_copy);
}

KernelSpec digest_spec() {
  return spec(
      "digest", 1,
      parameters<In<std::uint8_t>, InOut<std::int64_t>, std::uint64_t, std::uint64_t>({"x", "d", "count", "salt"}),
      run_digest);
}

KernelSpec shared_words_spec() {
  KernelSpec shared =
      spec("shared_words", 32, parameters<Out<std::uint32_t>, std::uint32_t>({"y", "words"}), run_shared_words);
  shared.launch = [](std::span<const std::uint64_t> words) {
    return LaunchConfig{.grid = {}, .dynamic_shared_bytes = words[0]};
  };
  shared.host->static_shared_bytes = 16;
  return shared;
}

KernelSpec unpack_spec() {
  return spec(
      "unpack", 32,
      parameters<In<std::uint8_t>, In<std::uint32_t>, Out<std::uint8_t>, std::uint32_t, std::uint32_t, std::uint32_t>(
          {"packed", "extents", "y", "bytes", "records", "width"}),
      run_unpack);
}

KernelSpec append_spec() {
  return spec("append", 1,
              parameters<In<std::uint8_t>, InOut<std::uint8_t>, InOut<std::uint32_t>, Out<std::int64_t>, std::uint32_t>(
                  {"x", "cache", "length", "d", "bytes"}),
              run_append);
}

KernelSpec spin_until_zero_spec() {
  return spec("spin_until_zero", 1, parameters<InOut<std::uint32_t>, Out<std::uint32_t>>({"counter", "y"}),
              run_spin_until_zero);
}

}  // namespace test
}  // namespace weft
