#include "foreign_memory.h"

#include "catch.h"
#include "context_state.h"
#include "device_memory.h"
#include "runtime/memory_work.h"
#include "support/bytes.h"
#include "support/deadlines.h"
#include <weft/weft.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Memory of somebody else that a context adopts as a buffer. Weights that are adopted: model/session_weight_test.cpp.

namespace weft::test {
namespace {

constexpr std::uint64_t kBytes = 1024;
using Values = std::vector<std::uint8_t>;

/// An allocation of somebody else that holds bytes, and counts how often it is released.
class Lender {
 public:
  explicit Lender(const Context& context, const Values& values = fresh_bytes(kBytes, 1))
      : domain_(std::make_shared<AllocationDomain>(ContextAccess::state(context)->domain()->api(), Allocator{},
                                                   std::nullopt)),
        memory_(domain_, domain_->stream(), values.size(), "the test") {
    copy_now(*domain_->api(), domain_->stream(),
             {memory_.address(), reinterpret_cast<DeviceAddress>(values.data()), values.size()}, "fill memory");
  }

  [[nodiscard]] AdoptedMemory lend(std::uint64_t offset = 0) {
    return {reinterpret_cast<void*>(memory_.address() + offset), [count = released_] { ++*count; }};
  }
  [[nodiscard]] int released() const { return *released_; }

 private:
  std::shared_ptr<AllocationDomain> domain_;
  DeviceMemory memory_;
  std::shared_ptr<int> released_ = std::make_shared<int>(0);
};

}  // namespace

TEST_CASE("Adopted memory is a buffer with what is in it and is released once", "[runtime][interop]") {
  const Context context = open_context();
  Lender lender(context);
  const std::vector<std::uint64_t> before = live(context);
  {
    std::optional<Buffer> buffer = context.adopt(trusted, lender.lend(256), 512, "lent");
    CHECK(buffer->bytes() == 512);
    CHECK(buffer->placement() == Placement::device);
    CHECK(context.memory().requested.live_bytes == before[0] + 512);
    CHECK(context.memory().reserved.live_bytes == before[1]);
    const Values whole = fresh_bytes(kBytes, 1);
    CHECK(values(*buffer) == Values(whole.begin() + 256, whole.begin() + 768));
    const DeviceTensor part = buffer->tensor(bytes_desc(4), 8);
    buffer.reset();
    const DeviceTensor written = upload(context, {9, 8, 7, 6}).copy_into(part);
    CHECK(values(written) == Values{9, 8, 7, 6});
    CHECK(lender.released() == 0);
  }
  CHECK(eventually([&] { return live(context)[0] == before[0]; }));
  CHECK(lender.released() == 1);
}

TEST_CASE("Adopted memory is released once what is in flight on it has drained", "[runtime][interop][host-only]") {
  const HeldContext held;
  Lender lender(held.context);
  const DeviceTensor source = upload(held.context, Values(kBytes, 5));
  REQUIRE(source.wait(in_a_minute()));
  {
    const Buffer buffer = held.context.adopt(trusted, lender.lend(), kBytes);
    held.device->hold();
    static_cast<void>(source.copy_into(buffer.tensor(bytes_desc(kBytes))));
  }
  static_cast<void>(held.context.memory());
  CHECK(lender.released() == 0);
  held.device->drain();
  CHECK(eventually([&] {
    static_cast<void>(held.context.memory());  // Lets go of what has drained.
    return lender.released() == 1;
  }));
}

TEST_CASE("Memory that a buffer cannot adopt is refused and stays its owner's", "[runtime][interop]") {
  const Context context = open_context({.budget = MemoryBudget(kBytes)});
  Lender lender(context);
  const auto refused = [&](AdoptedMemory memory, std::uint64_t bytes) {
    const Error error = refusal([&] { static_cast<void>(context.adopt(trusted, std::move(memory), bytes, "lent")); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.contexts() == std::vector<std::string>{"adopting the buffer \"lent\""});
    return error.sentence();
  };
  CHECK(contains(refused(lender.lend(), 0), "has 0 bytes"));
  CHECK(contains(refused(lender.lend(16), 16), "weft's storage starts at multiples of 256."));
  CHECK(contains(refused(lender.lend(768), 257), "is given as 257 bytes; its allocation has 256 from there on."));
  CHECK(contains(refused(AdoptedMemory{}, 16), "is no memory of the device."));
  const Buffer pinned = context.allocate(256, {.placement = Placement::shared});
  const std::optional<ReadGuard> guard = pinned.map_read(in_a_minute());
  REQUIRE(guard.has_value());
  AdoptedMemory host{const_cast<std::byte*>(guard->bytes().data())};
  CHECK(contains(refused(host, 16), "is no memory of the device."));
  CHECK(lender.released() == 0);
  static_cast<void>(context.adopt(trusted, lender.lend(768), 256));  // The budget is for what weft takes.
  CHECK(lender.released() == 1);
}

TEST_CASE("Adopted memory without a release is the caller's throughout", "[runtime][interop]") {
  const Context context = open_context();
  Lender lender(context);
  AdoptedMemory memory{lender.lend().address};
  CHECK(values(context.adopt(trusted, memory, kBytes)) == fresh_bytes(kBytes, 1));
  CHECK(values(context.adopt(trusted, memory, kBytes)) == fresh_bytes(kBytes, 1));
}

TEST_CASE("Adopted memory goes with the context when it is the last to go", "[runtime][interop]") {
  std::optional<Context> context = open_context();
  Lender lender(*context);
  std::optional<Buffer> buffer = context->adopt(trusted, lender.lend(), kBytes);
  context.reset();
  CHECK(values(*buffer) == fresh_bytes(kBytes, 1));
  CHECK(lender.released() == 0);
  buffer.reset();
  CHECK(lender.released() == 1);
}

}  // namespace weft::test
