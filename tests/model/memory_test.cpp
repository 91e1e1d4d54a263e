#include "catch.h"
#include "device/device_api.h"
#include "device/faults.h"
#include "device/handles.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

/// Completion word: a line of its own.
constexpr std::uint64_t kWordBytes = 128;
/// Counters of weft's own in a slot's arena.
constexpr std::uint64_t kControlBytes = 256;

/// An allocator over the device's own pool that keeps books.
class BookedAllocator {
 public:
  explicit BookedAllocator(Device device) : api_(open_device(device)) {}

  [[nodiscard]] Allocator hooks() {
    return {.allocate = [this](std::uint64_t bytes, void* stream) { return allocate(bytes, stream); },
            .release = [this](void* address, std::uint64_t bytes, void* stream) { release(address, bytes, stream); }};
  }

  std::uint64_t offset = 0;             ///< Added to every address that is handed out.
  std::optional<std::uint64_t> refuse;  ///< The allocation with this number, and those after it, are refused.

  [[nodiscard]] std::uint64_t allocations() const { return allocations_; }
  [[nodiscard]] std::size_t live() {
    const std::lock_guard lock(mutex_);
    return live_.size();
  }
  [[nodiscard]] bool is_balanced() const { return balanced_; }

 private:
  void* allocate(std::uint64_t bytes, void* stream) {
    const std::uint64_t number = allocations_++;
    if (refuse && number >= *refuse) return nullptr;
    DeviceAddress address = 0;
    check(api_->allocate(static_cast<StreamHandle>(reinterpret_cast<std::uintptr_t>(stream)), bytes + offset, address),
          "allocate for the test");
    const std::lock_guard lock(mutex_);
    live_.emplace(address + offset, bytes);
    return reinterpret_cast<void*>(address + offset);
  }

  void release(void* address, std::uint64_t bytes, void* stream) noexcept {
    const auto given = reinterpret_cast<DeviceAddress>(address);
    const std::lock_guard lock(mutex_);
    const auto found = live_.find(given);
    if (found == live_.end() || found->second != bytes) balanced_ = false;
    live_.erase(given);
    static_cast<void>(api_->free(static_cast<StreamHandle>(reinterpret_cast<std::uintptr_t>(stream)), given - offset));
  }

  std::shared_ptr<DeviceApi> api_;
  std::mutex mutex_;
  std::unordered_map<DeviceAddress, std::uint64_t> live_;
  std::atomic<std::uint64_t> allocations_{0};
  std::atomic<bool> balanced_{true};
};

/// Notes what is allocated.
class AllocationLog final : public DeviceDecorator {
 public:
  using DeviceDecorator::DeviceDecorator;
  DeviceStatus allocate(StreamHandle stream, std::uint64_t bytes, DeviceAddress& address) noexcept override {
    const DeviceStatus status = DeviceDecorator::allocate(stream, bytes, address);
    if (status.ok()) addresses.push_back(address);
    return status;
  }
  std::vector<DeviceAddress> addresses;
};

}  // namespace

TEST_CASE("A pool requests the used extents of each slot and weights once", "[model][S10][S40][arena]") {
  TestSession test;
  const auto w = test.weight(std::vector<std::uint8_t>(100, 1));
  const auto x = test.session.allocate<std::uint8_t>({kCount}, {.label = "x"});
  const Region big = test.session.allocate(4096, {.label = "big"});
  const Region unused = test.session.allocate(1 << 20, {.label = "unused"});
  const Region partly = test.session.allocate(4096, {.label = "partly"});
  const ModelDefinition model = test.freeze();
  CHECK(model.weight_bytes() == 100);
  const MemoryStatistics frozen = test.context.memory();
  CHECK(frozen.requested.live_bytes == 100);
  CHECK(frozen.requested.allocations == 1);
  CHECK(frozen.reserved.live_bytes == 100);
  CHECK(frozen.staging.live_bytes == 0);

  // Of `big` the bytes 32 to 96 are used: its tail is trimmed and the hole at its front is kept. Of `partly` a
  // descriptor uses 10 bytes of a region of 100.
  const ModelFragment fragment =
      model.fragment(trusted, {.inputs = {x},
                               .outputs = {{partly.slice(0, 100), TensorDesc(DType::u8, {10})}},
                               .commands = {test.xor_of(w.slice(0, kCount), big.slice(32, kCount), 1)}});
  CHECK(test.context.memory() == frozen);
  CHECK(unused.bytes == 1 << 20);
  {
    const PreparedModel prepared = fragment.prepare({.slots = 3});
    const MemoryStatistics now = test.context.memory();
    CHECK(prepared.topology().requested_bytes == 64 + 96 + 10);
    CHECK(prepared.topology().reserved_bytes == 3 * 256 + kControlBytes);
    CHECK(now.requested.live_bytes == 100 + 3 * (64 + 96 + 10));
    CHECK(now.requested.allocations == 1 + 3 * 3);
    CHECK(now.reserved.live_bytes == 100 + 3 * (3 * 256 + kControlBytes));
    CHECK(now.reserved.allocations == 1 + 3);
    CHECK(now.staging.live_bytes == 3 * (256 + 256 + kWordBytes));
    CHECK(now.staging.allocations == 2);  // The words stand apart.
    const PreparedModel second = fragment.prepare();
    CHECK(test.context.memory().requested.live_bytes == 100 + 4 * (64 + 96 + 10));
  }
  CHECK(eventually([&] { return test.context.memory().staging.live_bytes == 0; }));
  const MemoryStatistics after = test.context.memory();
  CHECK(after.requested.live_bytes == 100);
  CHECK(after.reserved.live_bytes == 100);
  CHECK(after.requested.peak_bytes == 100 + 4 * (64 + 96 + 10));
}

TEST_CASE("A model's memory ends with its last user", "[model][B3]") {
  const Context context = Context::open(test_device());
  std::optional<PreparedModel> prepared;
  {
    TestSession test(context);
    const auto w = test.weight(std::vector<std::uint8_t>(kCount, 1));
    const auto y = test.session.allocate<std::uint8_t>({kCount});
    std::optional<ModelDefinition> model = test.freeze();
    std::optional<ModelFragment> fragment =
        model->fragment(trusted, {.outputs = {y}, .commands = {test.xor_of(w, y, 1)}});
    model.reset();
    CHECK(context.memory().requested.live_bytes == kCount);
    prepared = fragment->prepare();
  }
  CHECK(context.memory().requested.live_bytes == 2 * kCount);
  CHECK(infer(*prepared, {}) == std::vector<std::uint8_t>(kCount, 0));
  prepared.reset();
  CHECK(eventually([&] { return context.memory().requested.live_bytes == 0; }));
  CHECK(context.memory().reserved.live_bytes == 0);
}

TEST_CASE("Shared scratch stands in pinned memory and is counted there", "[model][B12][T7][arena]") {
  TestSession test;
  const auto x = test.session.allocate<std::uint8_t>({32}, {.label = "x", .placement = Placement::shared});
  const auto h = test.session.allocate<std::uint8_t>({32}, {.label = "h", .placement = Placement::shared});
  const auto y = test.session.allocate<std::uint8_t>({32}, {.label = "y"});
  PreparedModel prepared =
      test.freeze()
          .fragment(trusted, {.inputs = {x},
                              .outputs = {y},
                              .commands = {fill(h, 3), test.xor_of(x, h, 0x0f), test.xor_of(h, y, 0xf0)}})
          .prepare();
  const MemoryStatistics now = test.context.memory();
  CHECK(now.requested.live_bytes == 96);
  CHECK(now.reserved.live_bytes == 256 + kControlBytes);
  CHECK(now.staging.live_bytes == 3 * 256 + kWordBytes);  // x and h themselves, and the staging of y.
  const std::vector<std::uint8_t> input = fresh_bytes(32, 4);
  CHECK(infer(prepared, input) == xored(input, 0xff));
}

TEST_CASE("A budget that is too small for the staging refuses the pool and keeps nothing",
          "[model][T10][S50][R25][arena]") {
  const MemoryBudget budget(1 << 20);
  const Context context = Context::open(test_device(), {.budget = budget});
  const XorModel model(TestSession(context), kCount, 0xff);
  const std::uint64_t before = budget.used_bytes();
  std::uint64_t needed = 0;
  std::uint64_t graphs = 0;
  {
    const PreparedModel pool = model.fragment.prepare({.slots = 2});
    needed = budget.used_bytes() - before;
    graphs = context.memory().graphs.live_bytes;
  }
  REQUIRE(eventually([&] { return context.memory().staging.live_bytes == 0 && budget.used_bytes() == before; }));
  CHECK(needed == 2 * (3 * 256 + kControlBytes) + 2 * (2 * 256 + kWordBytes) + graphs);
  needed = model.fragment.required_bytes({.slots = 2});
  MemoryReservation others = budget.reserve(budget.ceiling_bytes() - before - needed + 1);
  const MemoryStatistics memory = context.memory();
  const std::uint64_t used = budget.used_bytes();
  const Error error = refusal([&] { static_cast<void>(model.fragment.prepare({.slots = 2})); });
  CHECK(error.code() == ErrorCode::busy);
  CHECK(context.memory().requested.live_bytes == memory.requested.live_bytes);
  CHECK(eventually(
      [&] { return context.memory().staging.live_bytes == memory.staging.live_bytes && budget.used_bytes() == used; }));
  others = MemoryReservation();
  PreparedModel pool = model.fragment.prepare({.slots = 2});
  const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
  CHECK(infer(pool, input) == xored(input, 0xff));
}

TEST_CASE("Arenas come from the context's allocator and go back to it", "[model][arena]") {
  BookedAllocator allocator(test_device());
  {
    const Context context = Context::open(test_device(), {.allocator = allocator.hooks()});
    const XorModel model(TestSession(context), kCount, 0xff);
    PreparedModel prepared = model.fragment.prepare({.slots = 3});
    CHECK(allocator.allocations() == 3);
    CHECK(allocator.live() == 3);
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
    CHECK(infer(prepared, input) == xored(input, 0xff));
    const PreparedModel separate = model.fragment.prepare({.separate_allocations = true});
    CHECK(allocator.allocations() == 7);
  }
  CHECK(allocator.live() == 0);
  CHECK(allocator.is_balanced());
}

TEST_CASE("An allocator without memory is out of memory and the slots before are freed", "[model][S49][arena]") {
  BookedAllocator allocator(test_device());
  {
    const Context context = Context::open(test_device(), {.allocator = allocator.hooks()});
    const XorModel model(TestSession(context), kCount, 0xff);
    allocator.refuse = 2;
    const Error error = refusal([&] { static_cast<void>(model.fragment.prepare({.slots = 3})); });
    CHECK(error.code() == ErrorCode::out_of_memory);
    CHECK(error.sentence() == "The context's allocator has no memory.");
    CHECK(error.contexts() ==
          std::vector<std::string>{"allocating 1024 bytes for a slot of graph \"xor\"", "preparing slot 2 of 3"});
    CHECK(allocator.live() == 0);
    CHECK(allocator.allocations() == 4);  // The third was asked for once more.
    CHECK(context.memory().requested.live_bytes == 0);
    allocator.refuse.reset();
    PreparedModel prepared = model.fragment.prepare({.slots = 3});
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, 1);
    CHECK(infer(prepared, input) == xored(input, 0xff));
  }
  CHECK(allocator.live() == 0);
  CHECK(allocator.is_balanced());
}

TEST_CASE("A misaligned address of the context's allocator is refused and given back", "[model]") {
  BookedAllocator allocator(test_device());
  allocator.offset = 64;
  const Context context = Context::open(test_device(), {.allocator = allocator.hooks()});
  const XorModel model(TestSession(context), kCount, 0xff);
  const Error error = refusal([&] { static_cast<void>(model.fragment.prepare()); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.sentence(), "weft needs multiples of 256."));
  CHECK(allocator.live() == 0);
  CHECK(allocator.is_balanced());
}

TEST_CASE("An address that is no memory of the device is refused and given back", "[model]") {
  alignas(256) static std::array<std::byte, 1 << 16> foreign;
  int released = 0;
  const Context context = Context::open(
      test_device(), {.allocator = {.allocate = [](std::uint64_t, void*) { return static_cast<void*>(foreign.data()); },
                                    .release = [&](void*, std::uint64_t, void*) { ++released; }}});
  const XorModel model(TestSession(context), kCount, 0xff);
  const Error error = refusal([&] { static_cast<void>(model.fragment.prepare()); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.sentence(), "which is no memory of the device."));
  CHECK(released == 1);
}

TEST_CASE("Half an allocator is refused", "[model]") {
  BookedAllocator allocator(test_device());
  Allocator half = allocator.hooks();
  half.release = {};
  const Error error = refusal([&] { static_cast<void>(Context::open(test_device(), {.allocator = half})); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The context's allocator has one of allocate and release; it needs both or neither.");
}

TEST_CASE("Separate allocations give the same answers and the same request", "[model][arena]") {
  const XorModel model(kCount);
  PreparedModel together = model.fragment.prepare({.slots = 2});
  const std::uint64_t requested = model.fragment.context().memory().requested.live_bytes;
  PreparedModel separate = model.fragment.prepare({.slots = 2, .separate_allocations = true});
  CHECK(model.fragment.context().memory().requested.live_bytes == 2 * requested);
  for (std::uint32_t round = 0; round < 4; ++round) {
    const std::vector<std::uint8_t> input = fresh_bytes(kCount, round);
    CHECK(infer(separate, input) == xored(input, 0xff));
    CHECK(infer(together, input) == xored(input, 0xff));
  }
  CHECK_NOTHROW(separate.check_canaries());
  const Error error = refusal([&] { together.check_canaries(); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The model was prepared without separate_allocations; it has no canaries.");
}

TEST_CASE("A canary tells a write before a region", "[model]") {
  const auto device = std::make_shared<AllocationLog>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  const XorModel model(kCount);
  const PreparedModel prepared = model.fragment.prepare({.separate_allocations = true});
  // x, h, y and the control block, each behind a canary of 256 bytes.
  REQUIRE(device->addresses.size() == 4);
  const auto check_told = [&](std::size_t allocation, std::uint64_t offset, const std::string& sentence) {
    const std::shared_ptr<DeviceApi> api = device;
    const UniqueStream stream = create_stream(api);
    const auto write = [&](std::uint8_t value) {
      check(api->fill(stream.get(), {device->addresses[allocation] + offset, 3, value}), "write before a region");
      check(api->synchronize_stream(stream.get()), "write before a region");
    };
    write(0);
    const Error error = refusal([&] { prepared.check_canaries(); });
    CHECK(error.code() == ErrorCode::failed);
    CHECK(error.sentence() == sentence);
    write(0xC7);
    CHECK_NOTHROW(prepared.check_canaries());
  };
  check_told(0, 253, "A byte 1 before the start of \"x\" of graph \"xor\" was overwritten.");
  check_told(1, 0, "A byte 254 before the start of \"h\" of graph \"xor\" was overwritten.");
  check_told(2, 200, "A byte 54 before the start of \"y\" of graph \"xor\" was overwritten.");
}

}  // namespace weft::test
