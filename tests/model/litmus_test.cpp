// The completion word means that results are readable: the host checks every byte right after the word, over sizes
// around the powers of two, with copies by kernels, by copy engines and to the caller's tensors, and without any. A
// missing release, fence or edge shows here as a stale byte.

#include "catch.h"
#include "support/device.h"
#include "support/test_kernels.h"
#include <weft/weft.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <span>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kSlots = 8;
constexpr std::uint8_t kMask = 0x5A;

/// How a result comes to where the host reads it.
struct Way {
  const char* name;
  weft::CopyMethod copies = weft::CopyMethod::automatic;
  weft::Placement placement = weft::Placement::device;  ///< Shared: the model's kernel writes it there.
  bool into = false;  ///< To a tensor of the caller's, by the kernel that reads a table.
};

constexpr std::array kWays{Way{.name = "by kernel", .copies = weft::CopyMethod::kernel},
                           Way{.name = "by engine", .copies = weft::CopyMethod::engine},
                           Way{.name = "in place", .placement = weft::Placement::shared},
                           Way{.name = "into a tensor", .into = true}};

/// Requests over all sizes and ways: WEFT_LITMUS_REQUESTS, or a million on a GPU and ten thousand on the
/// host, of which a sanitizer leaves time for a thousand.
std::uint64_t requested_total() {
  if (const char* text = std::getenv("WEFT_LITMUS_REQUESTS")) return std::strtoull(text, nullptr, 10);
  if (weft::test::on_cuda()) return 1'000'000;
  return WEFT_SANITIZED ? 1'000 : 10'000;
}

std::vector<std::uint64_t> litmus_sizes() {
  std::vector<std::uint64_t> sizes;
  for (std::uint64_t power = 1; power <= (1u << 20); power *= 2) {
    for (const std::uint64_t size : {power - 1, power, power + 1}) {
      if (size > 0 && (sizes.empty() || size > sizes.back())) sizes.push_back(size);
    }
  }
  return sizes;
}

/// Bytes that differ from request to request in every word.
void generate(std::uint8_t* bytes, std::uint64_t size, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  const auto next = [&] {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
  };
  std::uint64_t i = 0;
  for (; i + 8 <= size; i += 8) {
    const std::uint64_t word = next();
    std::memcpy(bytes + i, &word, 8);
  }
  if (i < size) {
    const std::uint64_t word = next();
    std::memcpy(bytes + i, &word, size - i);
  }
}

class LitmusModel {
 public:
  LitmusModel(weft::Context& context, std::uint64_t size, const Way& way)
      : size_(size), expected_(size), prepared_(prepare(context, size, way)) {
    if (!way.into) return;
    for (std::uint32_t i = 0; i < kSlots; ++i)
      targets_.push_back(context.allocate(size, {.label = "target", .placement = weft::Placement::shared}));
  }

  /// Runs `count` requests, as many in flight as there are slots, and returns how many had a wrong byte.
  std::uint64_t run(std::uint64_t count, std::uint64_t first_seed) {
    std::uint64_t wrong = 0;
    std::deque<std::pair<std::uint64_t, weft::Inference>> in_flight;
    for (std::uint64_t seed = first_seed; seed < first_seed + count; ++seed) {
      if (in_flight.size() == kSlots) {
        wrong += is_wrong(in_flight.front());
        in_flight.pop_front();
      }
      auto slot = prepared_.acquire(std::chrono::steady_clock::now() + 60s);
      REQUIRE(slot.has_value());
      generate(slot->input<std::uint8_t>(0).data(), size_, seed);
      weft::SubmitOptions options;
      if (!targets_.empty()) options.into = {target(seed).tensor({weft::DType::u8, {size_}})};
      in_flight.emplace_back(seed, std::move(*slot).submit(std::move(options)));
    }
    for (auto& request : in_flight) wrong += is_wrong(request);
    return wrong;
  }

 private:
  static weft::PreparedModel prepare(weft::Context& context, std::uint64_t size, const Way& way) {
    weft::ModelSession session(context.device());
    const auto kernel = session.load(weft::test::xor_bytes);
    const auto x = session.allocate<std::uint8_t>({size}, {.label = "x", .placement = way.placement});
    const auto y = session.allocate<std::uint8_t>({size}, {.label = "y", .placement = way.placement});
    const auto model = std::move(session).freeze(context);
    return model
        .fragment(weft::trusted, {.inputs = {x},
                                  .outputs = {y},
                                  .commands = {kernel(weft::workload(size), x, y, std::uint64_t{size}, kMask)},
                                  .label = "litmus"})
        .prepare({.slots = kSlots,
                  .forms = {{.outputs = way.into ? weft::Side::device : weft::Side::host}},
                  .copies = way.copies});
  }

  /// As many requests are in flight as there are targets, and the first is the first to end.
  [[nodiscard]] const weft::Buffer& target(std::uint64_t seed) const { return targets_[seed % kSlots]; }

  std::uint64_t is_wrong(std::pair<std::uint64_t, weft::Inference>& request) {
    generate(expected_.data(), size_, request.first);
    for (std::uint8_t& byte : expected_) byte ^= kMask;
    REQUIRE(request.second.wait(std::chrono::steady_clock::now() + 60s));
    if (targets_.empty()) return differs(std::as_bytes(request.second.output<std::uint8_t>(0)));
    return differs(target(request.first).try_map_read().value().bytes());
  }

  [[nodiscard]] std::uint64_t differs(std::span<const std::byte> result) const {
    return std::memcmp(result.data(), expected_.data(), size_) == 0 ? 0 : 1;
  }

  std::uint64_t size_;
  std::vector<std::uint8_t> expected_;
  weft::PreparedModel prepared_;
  std::vector<weft::Buffer> targets_;
};

}  // namespace

TEST_CASE("Every byte of a result is readable once the completion word says so", "[model][R18][litmus]") {
  weft::Context context = weft::Context::open(weft::test::test_device());
  const std::vector<std::uint64_t> sizes = litmus_sizes();
  const std::uint64_t each = requested_total() / (kWays.size() * sizes.size()) + 1;
  std::uint64_t requests = 0;
  for (const Way& way : kWays) {
    for (const std::uint64_t size : sizes) {
      INFO("size " << size << " bytes, " << way.name);
      LitmusModel model(context, size, way);
      CHECK(model.run(each, requests) == 0);
      requests += each;
    }
  }
  CHECK(requests >= requested_total());
}
