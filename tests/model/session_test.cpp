#include "catch.h"
#include "device/faults.h"
#include "device/own_kernels.h"
#include "device/registry.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr std::uint64_t kCount = 64;

template <class Call>
void check_refused(const Call& call, const std::string& sentence, const std::vector<std::string>& contexts = {}) {
  const Error error = refusal(call);
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == sentence);
  CHECK(error.contexts() == contexts);
}

/// PTX of a kernel that stores a digit.
std::string storing_ptx(std::uint32_t value) {
  return R"(.version 7.0
.target sm_75
.address_size 64
.visible .entry store(.param .u64 x) {
  .reg .b64 %rd<3>;
  .reg .b32 %r<2>;
  ld.param.u64 %rd1, [x];
  cvta.to.global.u64 %rd2, %rd1;
  mov.u32 %r1, )" +
         std::to_string(value) + R"(;
  st.global.u32 [%rd2], %r1;
  ret;
}
)";
}

/// The same for the host device.
KernelSpec storing_spec(std::uint32_t value) {
  return {.symbol = "store",
          .parameters = {{.kind = ParameterKind::binding, .size = 8, .access = Access::write, .element_size = 4}},
          .host = HostKernel{.run = [value](const HostLaunch& launch) { *launch.get<std::uint32_t*>(0) = value; },
                             .parameter_sizes = {8}}};
}

}  // namespace

TEST_CASE("Sessions and allocations have ids of their own", "[model]") {
  ModelSession first(test_device());
  ModelSession second(test_device());
  const Region a = first.allocate(1);
  const Region b = first.allocate(2);
  const Region c = second.allocate(1);
  CHECK(a.session == b.session);
  CHECK(a.session != c.session);
  CHECK(a.allocation == 0);
  CHECK(b.allocation == 1);
  CHECK(b.bytes == 2);
}

TEST_CASE("An allocation without bytes or beyond the largest size is refused", "[model]") {
  ModelSession session(test_device());
  const std::string limit = " bytes; an allocation has 1 to 9223372036854775807.";
  check_refused([&] { static_cast<void>(session.allocate(0, {.label = "none"})); },
                "The allocation \"none\" has 0" + limit);
  check_refused(
      [&] {
        static_cast<void>(session.allocate<float>({4, 0}, {.label = "empty"}));
      },
      "The allocation \"empty\" has 0" + limit);
  check_refused([&] { static_cast<void>(session.allocate(std::uint64_t{1} << 63, {.label = "huge"})); },
                "The allocation \"huge\" has 9223372036854775808" + limit);
  CHECK(session.allocate(std::numeric_limits<std::int64_t>::max()).allocation == 0);
}

TEST_CASE("A weight has its bytes and its label and descriptor", "[model]") {
  TestSession test;
  const std::vector<std::uint8_t> values = fresh_bytes(kCount, 1);
  const TensorRegion w = test.session.weight({TensorDesc(DType::u8, {8, 8}), std::as_bytes(std::span(values)), "w"});
  CHECK(w.desc == TensorDesc(DType::u8, {8, 8}));
  CHECK(w.bytes == kCount);
  const auto y = test.session.allocate<std::uint8_t>({kCount});
  PreparedModel prepared =
      test.freeze().fragment(trusted, {.outputs = {y}, .commands = {test.xor_of(w, y, 0)}}).prepare();
  CHECK(infer(prepared, {}) == values);
}

TEST_CASE("A weight whose tensor is empty or of other bytes or of another type is refused", "[model]") {
  ModelSession session(test_device());
  const std::vector<std::byte> bytes(10);
  check_refused(
      [&] {
        static_cast<void>(session.weight({TensorDesc(DType::u8, {0}), {}, "w"}));
      },
      "The tensor u8[0] is empty.", {"making the weight \"w\""});
  check_refused(
      [&] {
        static_cast<void>(session.weight({TensorDesc(DType::u8, {9}), bytes, "w"}));
      },
      "The tensor u8[9] has 9 bytes; 10 are given.", {"making the weight \"w\""});
  check_refused(
      [&] {
        static_cast<void>(session.weight<float>({TensorDesc(DType::u8, {10}), bytes, "w"}));
      },
      "The tensor \"w\" holds u8; the weight is asked for as f32.");
}

TEST_CASE("A frozen or moved-from session refuses every call", "[model][S1]") {
  TestSession test;
  ModelSession& session = test.session;
  const std::string sentence = "The session is moved from or frozen.";
  const std::vector<std::byte> bytes(4);
  std::vector<std::byte> room(4);
  const Region region = session.allocate(4);
  const auto check_all = [&] {
    check_refused([&] { static_cast<void>(session.allocate(4)); }, sentence);
    check_refused([&] { static_cast<void>(session.weight({TensorDesc(DType::u8, {4}), bytes, "w"})); }, sentence);
    check_refused([&] { static_cast<void>(session.allocate_shared(4)); }, sentence);
    check_refused([&] { static_cast<void>(session.weight(trusted, {}, TensorDesc(DType::u8, {4}))); }, sentence);
    check_refused([&] { static_cast<void>(session.load(increment)); }, sentence);
    check_refused([&] { session.upload(region, bytes); }, sentence);
    check_refused([&] { session.read(region, room); }, sentence);
    check_refused([&] { static_cast<void>(session.read_many({region})); }, sentence);
    check_refused([&] { session.record("key", {fill(region, 0)}); }, sentence);
    check_refused([&] { session.replay("key"); }, sentence);
    check_refused([&] { session.synchronize(); }, sentence);
    check_refused([&] { static_cast<void>(std::move(session).freeze(test.context)); }, sentence);
  };
  {
    const ModelSession taken = std::move(session);
    check_all();
  }
  session = ModelSession(test_device());
  CHECK(session.allocate(4).bytes == 4);
  static_cast<void>(std::move(session).freeze(test.context));
  check_all();
}

TEST_CASE("A block that the kernel or the device cannot run is refused when it is loaded", "[model][S37]") {
  ModelSession session(test_device());
  const auto refuse = [&](KernelSpec spec, Dim3 block, const std::string& sentence) {
    spec.block = block;
    const std::string name = spec.name();
    check_refused([&] { static_cast<void>(session.load(spec)); }, sentence, {"loading kernel \"" + name + "\""});
  };
  refuse(increment_spec(), {0, 1, 1}, "The block's x is 0; it must be between 1 and 1024.");
  refuse(increment_spec(), {1025, 1, 1}, "The block's x is 1025; it must be between 1 and 1024.");
  refuse(increment_spec(), {1, 2000, 1}, "The block's y is 2000; it must be between 1 and 1024.");
  refuse(increment_spec(), {1, 1, 65}, "The block's z is 65; it must be between 1 and 64.");
  refuse(increment_spec(), {1024, 2, 1}, "The block has 2048 threads; the device allows 1024.");
  refuse(own::copy_spec(), {512, 1, 1}, "The block has 512 threads; the kernel is compiled for at most 256.");
}

TEST_CASE("A spec that the compiled kernel contradicts is refused when it is loaded", "[model]") {
  ModelSession session(test_device());
  const std::vector<std::string> contexts{"loading kernel \"increment\""};
  KernelSpec spec = increment_spec();
  spec.parameters[1].size = 8;
  check_refused([&] { static_cast<void>(session.load(spec)); },
                "The spec gives parameter 1 (\"amount\") 8 bytes; the compiled kernel gives it 4.", contexts);
  spec = increment_spec();
  spec.parameters.pop_back();
  check_refused([&] { static_cast<void>(session.load(spec)); }, "The spec has 1 parameters; the compiled kernel has 2.",
                contexts);
  spec = increment_spec();
  spec.parameters[0].alignment = 3;
  check_refused([&] { static_cast<void>(session.load(spec)); },
                "The alignment of parameter 0 (\"x\") is 3 bytes, which is not a power of two.", contexts);
  spec = increment_spec();
  spec.parameters[1].size = 0;
  check_refused([&] { static_cast<void>(session.load(spec)); }, "The spec gives parameter 1 (\"amount\") 0 bytes.",
                contexts);
  spec = increment_spec();
  spec.parameters[0].alignment = 512;
  check_refused([&] { static_cast<void>(session.load(spec)); },
                "The alignment of parameter 0 (\"x\") is 512 bytes; weft's storage starts at multiples of 256.",
                contexts);
  spec = increment_spec();
  spec.parameters[0].size = 4;
  check_refused([&] { static_cast<void>(session.load(spec)); },
                "The binding parameter 0 (\"x\") has 4 bytes; a device pointer has 8.", contexts);
  spec = increment_spec();
  spec.parameters[1] = {.kind = ParameterKind::index, .size = 2, .name = "amount"};
  check_refused([&] { static_cast<void>(session.load(spec)); },
                "The index parameter 1 (\"amount\") has 2 bytes; an index has 4 or 8.", contexts);
  CHECK(session.load(increment).id().index == 0);
}

TEST_CASE("Two specs of one symbol keep a host reference each", "[model][host-only]") {
  const Context context = Context::open(Device::host());
  ModelSession session(Device::host());
  const KernelId one = session.load(storing_spec(1));
  const KernelId two = session.load(storing_spec(2));
  const auto x = session.allocate<std::uint32_t>({1});
  const auto y = session.allocate<std::uint32_t>({1});
  PreparedModel prepared =
      std::move(session)
          .freeze(context)
          .fragment(trusted,
                    {.outputs = {x, y}, .commands = {dispatch(one, grid(1), {x}), dispatch(two, grid(1), {y})}})
          .prepare();
  Inference run = std::move(prepared.acquire(in_a_minute()).value()).submit();
  REQUIRE(run.wait(in_a_minute()));
  CHECK(run.output(x)[0] == 1);
  CHECK(run.output(y)[0] == 2);
}

TEST_CASE("Kernels of one image share one load of it", "[model][B17]") {
  const auto device = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  ModelSession session(test_device());
  CHECK(device->count(Verb::load) == 0);
  CHECK(session.load(increment_spec()).index == 0);
  CHECK(session.load(xor_bytes_spec()).index == 1);
  CHECK(session.load(increment_spec()).index == 2);
  CHECK(device->count(Verb::load) == 1);
  KernelSpec elsewhere = increment_spec();
  const std::vector<std::byte> copy(elsewhere.image.bytes.begin(), elsewhere.image.bytes.end());
  elsewhere.image.bytes = copy;
  CHECK(session.load(elsewhere).index == 3);
  CHECK(device->count(Verb::load) == 1);
  CHECK(session.load(own::copy_spec()).index == 4);
  CHECK(device->count(Verb::load) == 2);
  ModelSession other(test_device());
  static_cast<void>(other.load(increment_spec()));
  CHECK(device->count(Verb::load) == 3);
}

TEST_CASE("Two functions of the program are two images", "[model][host-only]") {
  const auto device = std::make_shared<CountingDevice>(open_device(Device::host()));
  const ScopedDevice scoped(Device::host(), device);
  ModelSession session(Device::host());
  const std::array<int, 2> functions{};
  KernelSpec spec = increment_spec();
  for (const int index : {0, 1, 0, 1}) {
    spec.image = {.label = "native", .native = {.function = &functions.at(static_cast<std::size_t>(index))}};
    static_cast<void>(session.load(spec));
  }
  CHECK(device->count(Verb::load) == 2);
}

TEST_CASE("A spec that cannot be loaded leaves no code behind", "[model]") {
  const auto device = std::make_shared<CountingDevice>(open_device(test_device()));
  const ScopedDevice scoped(test_device(), device);
  ModelSession session(test_device());
  KernelSpec spec = increment_spec();
  spec.block = {0, 1, 1};
  CHECK_THROWS_AS(static_cast<void>(session.load(spec)), Error);
  CHECK(device->count(Verb::load) == 1);
  CHECK(device->count(Verb::unload) == 1);
  CHECK(session.load(increment_spec()).index == 0);
  CHECK_THROWS_AS(static_cast<void>(session.load(spec)), Error);
  CHECK(device->count(Verb::load) == 2);
  CHECK(device->count(Verb::unload) == 1);
  CHECK(session.load(xor_bytes_spec()).index == 1);
}

TEST_CASE("Other code at the address of an unloaded image is code of its own", "[model][B6]") {
  std::string text = storing_ptx(0);
  const auto result = [&](ModelSession& session, std::uint32_t value) {
    text.replace(0, text.size(), storing_ptx(value));  // In place: the same address, label and symbol.
    KernelSpec spec = storing_spec(value);
    spec.image = {std::as_bytes(std::span(text)), "code"};
    const Region x = session.allocate(4);
    session.record("store", {dispatch(session.load(spec), grid(1), {x})});
    session.replay("store");
    std::uint32_t stored = 0;
    session.read(x, std::as_writable_bytes(std::span(&stored, 1)));
    return stored;
  };
  for (const std::uint32_t value : {3u, 4u, 5u}) {
    ModelSession session(test_device());
    CHECK(result(session, value) == value);
  }
  ModelSession session(test_device());
  for (const std::uint32_t value : {6u, 7u, 6u}) CHECK(result(session, value) == value);
}

TEST_CASE("A symbol that its image lacks is refused by name", "[model][cuda-only]") {
  ModelSession session(test_device());
  KernelSpec spec = increment_spec();
  spec.symbol = "incremnt";
  const Error error = refusal([&] { static_cast<void>(session.load(spec)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.sentence(), "The code image \"test kernels\" gives no kernel with the symbol \"incremnt\""));
}

TEST_CASE("Bytes that are no code are refused", "[model][cuda-only]") {
  ModelSession session(test_device());
  KernelSpec spec = increment_spec();
  const std::string text = "this is neither a fatbin nor a cubin nor PTX";
  spec.image = {std::as_bytes(std::span(text)), "nonsense"};
  const Error error = refusal([&] { static_cast<void>(session.load(spec)); });
  // Driver 580 loads such text as an image without kernels, which is one without code for this GPU.
  CHECK((error.code() == ErrorCode::invalid || error.code() == ErrorCode::unsupported));
  CHECK(error.contexts() == std::vector<std::string>{"loading the code image \"nonsense\""});
}

}  // namespace weft::test
