#include "catch.h"
#include "device/own_kernels.h"
#include "support/device.h"
#include "support/model_fixture.h"
#include <weft/error.h>
#include <weft/weft.h>

#include <cstdint>
#include <limits>
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
  const auto check_all = [&] {
    check_refused([&] { static_cast<void>(session.allocate(4)); }, sentence);
    check_refused([&] { static_cast<void>(session.weight({TensorDesc(DType::u8, {4}), bytes, "w"})); }, sentence);
    check_refused([&] { static_cast<void>(session.load(increment)); }, sentence);
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

TEST_CASE("A freeze into a context of another device is refused and consumes the session",
          "[model][S1][S3][host-only]") {
  const Context other = Context::open(Device::host(7));
  ModelSession session(Device::host());
  check_refused([&] { static_cast<void>(std::move(session).freeze(other)); },
                "The session is of device host:0 and the context of host:7.");
  check_refused([&] { static_cast<void>(session.allocate(4)); }, "The session is moved from or frozen.");
  CHECK(other.memory().requested.live_bytes == 0);
}

TEST_CASE("A freeze moves weights without another allocation", "[model][S5]") {
  TestSession test;
  const auto w = test.weight(fresh_bytes(kCount, 1));
  CHECK(test.context.memory().requested.live_bytes == 0);
  const ModelDefinition model = test.freeze();
  CHECK(test.context.memory().requested.live_bytes == kCount);
  CHECK(model.weight_bytes() == kCount);
  CHECK(model.context() == test.context);
  CHECK(w.bytes == kCount);
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
  const auto storing = [](std::uint32_t value) {
    return KernelSpec{
        .symbol = "store",
        .parameters = {{.kind = ParameterKind::binding, .size = 8, .access = Access::write, .element_size = 4}},
        .host = HostKernel{.run = [value](const HostLaunch& launch) { *launch.get<std::uint32_t*>(0) = value; },
                           .parameter_sizes = {8}}};
  };
  const KernelId one = session.load(storing(1));
  const KernelId two = session.load(storing(2));
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

TEST_CASE("A spec that asks for clusters is unsupported", "[model]") {
  ModelSession session(test_device());
  KernelSpec spec = increment_spec();
  spec.cluster = {2, 1, 1};
  const Error error = refusal([&] { static_cast<void>(session.load(spec)); });
  CHECK(error.code() == ErrorCode::unsupported);
  CHECK(error.sentence() == "The spec asks for clusters of (2,1,1) blocks; weft launches none.");
  CHECK(error.contexts() == std::vector<std::string>{"loading kernel \"increment\""});
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
