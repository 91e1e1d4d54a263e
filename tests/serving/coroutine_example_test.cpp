#include "catch.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include "support/detached.h"
#include "support/model_fixture.h"
#include <weft/weft.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

// The coroutine of docs/serving.md.

namespace weft::test {
namespace {

/// The answer; none where the request is late or has failed.
using Reply = std::function<void(std::span<const std::uint8_t> answer, bool is_late)>;

Detached serve_one(PreparedModel model, std::vector<std::uint8_t> image, Deadline deadline, Reply reply) {
  try {
    std::optional<ModelSlot> slot = co_await model.acquire_async(deadline);
    if (!slot) co_return reply({}, true);
    std::ranges::copy(image, slot->input<std::uint8_t>(0).begin());
    const Inference run = std::move(*slot).submit();
    co_await run.completion();
    reply(run.output<std::uint8_t>(0), false);  // On the watcher's thread: short.
  } catch (const std::exception&) {
    reply({}, false);
  }
}

}  // namespace

TEST_CASE("Coroutines wait for slots and runs without a thread each", "[serving][docs][R18][R21]") {
  constexpr int kRequests = 64;
  constexpr std::uint64_t kBytes = 32;
  PreparedModel model = XorModel(kBytes).fragment.prepare({.slots = 2});
  std::atomic<int> answered{0};
  std::atomic<int> others{0};
  for (int i = 0; i < kRequests; ++i) {
    const std::vector<std::uint8_t> image = fresh_bytes(kBytes, static_cast<std::uint64_t>(i));
    serve_one(model, image, in_a_minute(),
              [&, expected = xored(image, 0xff)](std::span<const std::uint8_t> answer, bool) {
                ++(std::ranges::equal(answer, expected) ? answered : others);
              });
  }
  CHECK(eventually([&] { return answered + others == kRequests; }));
  CHECK(answered == kRequests);

  std::optional<ModelSlot> one;
  std::optional<ModelSlot> other;
  CHECK(eventually([&] { return (one || (one = model.try_acquire())) && (other = model.try_acquire()); }));
  std::atomic<int> late{0};
  serve_one(model, fresh_bytes(kBytes, 1), past(),
            [&](std::span<const std::uint8_t>, bool is_late) { late += is_late; });
  CHECK(eventually([&] { return late == 1; }));
  one.reset();
  other.reset();
  CHECK(infer(model, fresh_bytes(kBytes, 2)) == xored(fresh_bytes(kBytes, 2), 0xff));
}

}  // namespace weft::test
