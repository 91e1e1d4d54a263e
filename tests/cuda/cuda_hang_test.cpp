#include "catch.h"
#include "support/new_process.h"
#include "support/requests.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

// Kernels that do not end. What holds of hung runs on the host device: model/hang_test.cpp.

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 4096;
constexpr std::chrono::nanoseconds kHangAfter = std::chrono::milliseconds(200);
constexpr int kExitCode = 7;

/// y = x once a kernel has run for so long.
ModelFragment slow_model(TestSession test, std::chrono::nanoseconds span) {
  const auto x = test.session.allocate<std::uint32_t>({1}, {.label = "x"});
  const auto y = test.session.allocate<std::uint32_t>({1}, {.label = "y"});
  const Command copy = test.slow_copy(grid(1), x, y, std::uint64_t{1}, static_cast<std::uint64_t>(span.count()));
  return test.freeze().fragment(trusted, {.inputs = {x}, .outputs = {y}, .commands = {copy}, .label = "slow"});
}

bool hangs(Inference& run) {
  try {
    static_cast<void>(run.wait(in_a_minute()));
    return false;
  } catch (const Error& error) {
    return error.code() == ErrorCode::failed && contains(error.what(), "and hang_after is 0.200 s");
  }
}

Inference start_slow(PreparedModel& pool, std::uint32_t value) {
  std::optional<ModelSlot> slot = pool.acquire(in_a_minute());
  slot->input<std::uint32_t>(0)[0] = value;
  return std::move(*slot).submit();
}

}  // namespace

TEST_CASE("A kernel that never ends is told and others are served and the process can end",
          "[cuda][hang][process_end][fork][R21][case-40]") {
  in_new_process(
      [] {
        const Context context = Context::open(Device::cuda());
        XorModel quick(TestSession(context), kCount, 0xff);
        PreparedModel serves = quick.fragment.prepare({.slots = 2, .forms = all_forms()});
        const ModelFragment endless = slow_model(TestSession(context), std::chrono::hours(24));
        std::optional<PreparedModel> pool(endless.prepare({.slots = 2, .hang_after = kHangAfter}));
        std::optional<Inference> run(start_slow(*pool, 1));
        for (std::uint64_t i = 0; i < 20; ++i)
          require(infer(serves, fresh_bytes(kCount, i)) == xored(fresh_bytes(kCount, i), 0xff), 2);
        require(hangs(*run), 3);
        run.reset();
        std::optional<ModelSlot> other = pool->try_acquire();
        require(other.has_value(), 4);
        require(!pool->try_acquire().has_value(), 5);
        other.reset();
        pool.reset();
        for (std::uint64_t i = 0; i < 20; ++i)
          require(infer(serves, fresh_bytes(kCount, i)) == xored(fresh_bytes(kCount, i), 0xff), 6);
        std::exit(kExitCode);
      },
      kExitCode);
}

TEST_CASE("A run that ends after it was told to hang leaves nothing behind but its slot", "[cuda][hang][R21]") {
  const Context context = Context::open(Device::cuda());
  const ModelFragment slow = slow_model(TestSession(context), std::chrono::seconds(1));
  PreparedModel pool = slow.prepare({.slots = 2, .hang_after = kHangAfter});
  {
    Inference run = start_slow(pool, 1);
    CHECK(hangs(run));
    CHECK(run.completion().poll() == CompletionStatus::failed);
  }
  CHECK(eventually([&] { return context.statistics().slots.in_flight == 0; }));
  const std::optional<ModelSlot> other = pool.try_acquire();
  CHECK(other.has_value());
  CHECK(!pool.try_acquire().has_value());
}

}  // namespace weft::test
