#include "catch.h"
#include "device/device_api.h"
#include "device/faults.h"
#include "device/handles.h"
#include "device/host/host_device.h"
#include "device/registry.h"
#include "device_memory.h"
#include "staging.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include "support/session_work.h"
#include <weft/error.h>
#include <weft/safetensors.h>
#include <weft/weft.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;
using Values = std::vector<std::uint8_t>;

/// Device memory of somebody else, which holds bytes.
class ForeignMemory {
 public:
  explicit ForeignMemory(const Values& values)
      : domain_(std::make_shared<AllocationDomain>(open_device(test_device()), Allocator{}, std::nullopt)),
        memory_(domain_, domain_->stream(), values.size(), "the test") {
    copy_now(*domain_->api(), domain_->stream(),
             {memory_.address(), reinterpret_cast<DeviceAddress>(values.data()), values.size()}, "fill foreign memory");
  }

  [[nodiscard]] void* at(std::uint64_t offset) const { return reinterpret_cast<void*>(memory_.address() + offset); }
  /// The memory from `offset` on, with a release that is counted.
  [[nodiscard]] AdoptedMemory adopt(std::uint64_t offset = 0) {
    return {at(offset), [count = released_] { ++*count; }};
  }
  [[nodiscard]] int released() const { return *released_; }
  [[nodiscard]] Values values() const {
    Values bytes(memory_.bytes());
    copy_now(*domain_->api(), domain_->stream(),
             {reinterpret_cast<DeviceAddress>(bytes.data()), memory_.address(), bytes.size()}, "read foreign memory");
    return bytes;
  }

 private:
  std::shared_ptr<AllocationDomain> domain_;
  DeviceMemory memory_;
  std::shared_ptr<int> released_ = std::make_shared<int>(0);
};

const TensorDesc kBytes(DType::u8, {kCount});

}  // namespace

TEST_CASE("A weight larger than both staging buffers arrives whole", "[model]") {
  const Values values = fresh_bytes(2 * StagedCopy::kLargestPiece + 4099, 7);
  TestSession test;
  const TensorRegion w = test.session.weight(tensor_of(values, "w"));
  const Region x = test.session.allocate(values.size() + 3);
  upload(test.session, x.slice(3, values.size()), values);
  const bool weight_is_whole = read(test.session, w) == values;
  const bool upload_is_whole = read(test.session, x.slice(3, values.size())) == values;
  CHECK(weight_is_whole);
  CHECK(upload_is_whole);
}

TEST_CASE("Weights of all sizes share two bounded staging buffers", "[model][B10]") {
  const auto device = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  const MemoryBudget budget(std::uint64_t{1} << 30);
  ModelSession session(test_device(), {.budget = budget});
  const Values values = fresh_bytes(2 * StagedCopy::kLargestPiece + 1, 3);
  std::uint64_t total = 0;
  for (std::uint64_t bytes = 1; bytes <= values.size(); bytes = 3 * bytes + 1) {
    static_cast<void>(session.weight(tensor_of(std::span(values).first(bytes), "w")));
    total += bytes;
  }
  static_cast<void>(session.weight(tensor_of(values, "w")));
  total += values.size();
  CHECK(budget.used_bytes() <= total + 2 * StagedCopy::kLargestPiece);
  const std::uint64_t pinned = device->count(Verb::allocate_pinned);
  static_cast<void>(session.weight(tensor_of(values, "w")));
  CHECK(device->count(Verb::allocate_pinned) == pinned);
}

TEST_CASE("A weight may be the pages of a mapped file that is closed at once", "[model]") {
  TestSession test;
  std::optional<TensorRegion> w;
  Values expected;
  {
    const auto file = Safetensors::open(std::filesystem::path(WEFT_TEST_DATA) / "digits.safetensors");
    const HostTensor tensor = file.tensor("fc1.weight");
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(tensor.bytes.data());
    expected.assign(bytes, bytes + tensor.bytes.size());
    w = test.session.weight<float>(tensor);
    CHECK(w->desc == tensor.desc);
  }
  CHECK(read(test.session, *w) == expected);
}

TEST_CASE("The bytes of a weight are the caller's again while its copy waits", "[model][host-only]") {
  const std::shared_ptr<HostDevice> device = make_host_device();
  const ScopedDevice scoped(Device::host(), device);
  TestSession test;
  device->hold();
  Values values = fresh_bytes(kCount, 1);
  const Values expected = values;
  const auto w = test.weight(values);
  std::ranges::fill(values, std::uint8_t{0});
  device->release();
  CHECK(read(test.session, w) == expected);
  CHECK(device->violations().empty());
}

TEST_CASE("Memory of somebody else becomes a weight as it is", "[model][S5]") {
  const auto device = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  const Values values = fresh_bytes(1024, 5);
  ForeignMemory foreign(values);
  const MemoryBudget budget(std::uint64_t{1} << 30);
  {
    TestSession test(Context::open(test_device(), {.budget = budget}));
    const std::uint64_t copies = device->count(Verb::copy);
    const std::uint64_t allocations = device->count(Verb::allocate);
    const auto w = test.session.weight<std::uint8_t>(trusted, foreign.adopt(256), {kCount}, "w");
    CHECK(w.desc == kBytes);
    const auto y = test.session.allocate<std::uint8_t>({kCount}, {.label = "y"});
    const std::uint64_t used = budget.used_bytes();
    std::optional<ModelDefinition> model = test.freeze();
    CHECK(device->count(Verb::copy) == copies);
    CHECK(device->count(Verb::allocate) == allocations);
    CHECK(budget.used_bytes() == used);
    CHECK(model->weight_bytes() == kCount);
    CHECK(test.context.memory().requested.live_bytes == kCount);
    CHECK(test.context.memory().reserved.live_bytes == 0);

    PreparedModel prepared =
        model->fragment(trusted, {.outputs = {y}, .commands = {test.xor_of(w, y, 0x3c)}}).prepare();
    model.reset();
    CHECK(infer(prepared, {}) == xored({values.begin() + 256, values.begin() + 256 + kCount}, 0x3c));
    CHECK(foreign.released() == 0);
  }
  CHECK(eventually([&] {
    static_cast<void>(Context::open(test_device()));
    return foreign.released() == 1;
  }));
  CHECK(foreign.values() == values);
}

TEST_CASE("Memory of somebody else that a session adopts is released with the session", "[model]") {
  ForeignMemory foreign(Values(kCount, 1));
  {
    ModelSession session(test_device());
    const TensorRegion w = session.weight(trusted, foreign.adopt(), kBytes);
    session.record("fill", {fill(w.slice(0, 8), 2)});
    session.replay("fill");
    session.synchronize();
    CHECK(foreign.released() == 0);
  }
  CHECK(eventually([&] {
    const ModelSession next(test_device());
    return foreign.released() == 1;
  }));
  Values expected(kCount, 1);
  std::fill(expected.begin(), expected.begin() + 8, std::uint8_t{2});
  CHECK(foreign.values() == expected);
}

TEST_CASE("Memory that cannot be adopted is refused and stays its owner's", "[model]") {
  ForeignMemory foreign(Values(1024, 1));
  Values on_host(4096);
  {
    ModelSession session(test_device());
    const auto refuse = [&](AdoptedMemory memory, const TensorDesc& desc) {
      const Error error =
          refusal([&] { static_cast<void>(session.weight(trusted, std::move(memory), desc, "theirs")); });
      CHECK(error.code() == ErrorCode::invalid);
      CHECK(error.contexts() == std::vector<std::string>{"making the weight \"theirs\""});
      return error.sentence();
    };
    const auto starts = [](const std::string& text, const std::string& part) { return text.rfind(part, 0) == 0; };
    CHECK(refuse(foreign.adopt(), TensorDesc(DType::u8, {0})) == "The tensor u8[0] is empty.");
    CHECK(starts(refuse(foreign.adopt(16), kBytes), "The memory starts at 0x"));
    CHECK(contains(refuse(foreign.adopt(16), kBytes), "; weft's storage starts at multiples of 256."));
    CHECK(refuse({nullptr, {}}, kBytes) == "The address 0x0 is no memory of the device.");
    void* aligned = on_host.data();
    std::size_t room = on_host.size();
    REQUIRE(std::align(256, kCount, aligned, room) != nullptr);
    CHECK(contains(refuse({aligned, {}}, kBytes), " is no memory of the device."));
    const std::string sentence = refuse(foreign.adopt(768), TensorDesc(DType::u8, {257}));
    CHECK(contains(sentence, " is given as 257 bytes; its allocation has 256 from there on."));
    // Nothing of it has stayed behind.
    CHECK(session.allocate(1).allocation == 0);
    static_cast<void>(session.weight(trusted, foreign.adopt(768), TensorDesc(DType::u8, {256})));
    CHECK(foreign.released() == 0);
  }
  CHECK(foreign.released() == 1);
}

TEST_CASE("Pinned memory is no weight", "[model]") {
  const std::shared_ptr<DeviceApi> api = open_device(test_device());
  PinnedMemory pinned;
  check(api->allocate_pinned(1024, pinned), "allocate pinned memory");
  {
    ModelSession session(test_device());
    const Error error = refusal([&] { static_cast<void>(session.weight(trusted, {pinned.host, {}}, kBytes)); });
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(contains(error.sentence(), " is no memory of the device."));
  }
  check(api->free_pinned(pinned.host), "free pinned memory");
}

}  // namespace weft::test
