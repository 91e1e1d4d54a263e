#include "catch.h"
#include "support/deadlines.h"
#include "support/device.h"
#include <weft/nvrtc.h>
#include <weft/weft.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

constexpr const char* kScale = R"(
template <class T>
__global__ void scale(const T* x, T* y, unsigned count, T factor) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) y[i] = factor * x[i];
}
)";

// Shown in docs/kernels.md.
KernelSpec scale_spec() {
  const nvrtc::CompiledSource source =
      nvrtc::compile(kScale, {.label = "scale.cu", .options = {"--std=c++20"}, .kernels = {"scale<float>"}});
  return source.spec(
      {.symbol = "scale<float>",
       .block = {128, 1, 1},
       .parameters = parameters<In<float>, Out<float>, std::uint32_t, float>({"x", "y", "count", "factor"})});
}

void run_scale(const HostLaunch& launch) {
  for (std::uint32_t i = 0; i < launch.get<std::uint32_t>(2); ++i)
    launch.get<float*>(1)[i] = launch.get<float>(3) * launch.get<const float*>(0)[i];
}

std::vector<float> run(KernelSpec spec) {
  spec.host = HostKernel{.run = run_scale, .parameter_sizes = {8, 8, 4, 4}};
  constexpr std::uint32_t kCount = 200;
  ModelSession session(test_device());
  const auto x = session.allocate<float>({kCount}, {.label = "x"});
  const auto y = session.allocate<float>({kCount}, {.label = "y"});
  std::vector<float> values(kCount);
  for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i);
  session.upload(x, std::as_bytes(std::span(values)));
  const KernelId scale = session.load(spec);
  session.record("scale", {dispatch(scale, grid(2), {x, y, kCount, 3.0f})});
  session.replay("scale");
  session.read(y, std::as_writable_bytes(std::span(values)));
  return values;
}

std::vector<float> multiples_of_three() {
  std::vector<float> values(200);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(3 * i);
  return values;
}

std::string_view text_of(const nvrtc::CompiledSource& source) {
  return {reinterpret_cast<const char*>(source.bytes().data()), source.bytes().size()};
}

}  // namespace

TEST_CASE("A template that NVRTC compiles is found by its name in C++ and runs", "[edges][nvrtc]") {
  const KernelSpec spec = scale_spec();
  CHECK(spec.name() == "scale<float>");
  CHECK(contains(spec.symbol, "scale"));
  CHECK(spec.symbol != "scale<float>");
  CHECK(spec.image.label == "scale.cu");
  CHECK(run(spec) == multiples_of_three());
}

TEST_CASE("Source is compiled to PTX that the driver compiles further", "[edges][nvrtc]") {
  const nvrtc::CompiledSource source =
      nvrtc::compile(kScale, {.architecture = 80, .output = nvrtc::Output::ptx, .kernels = {"scale<float>"}});
  CHECK(contains(text_of(source), ".target sm_80"));
  KernelSpec spec = scale_spec();
  spec.image = {};
  spec.symbol = "scale<float>";
  CHECK(run(source.spec(spec)) == multiples_of_three());
}

TEST_CASE("A source is compiled to code of its architecture without a GPU", "[edges][nvrtc]") {
  const nvrtc::CompiledSource source = nvrtc::compile("extern \"C\" __global__ void plain(int* x) { *x = 1; }");
  CHECK(text_of(source).substr(0, 4) ==
        "\x7f"
        "ELF");
  CHECK(source.spec({.symbol = "plain"}).symbol == "plain");
  CHECK(source.log().empty());
}

TEST_CASE("Headers and options reach the compiler", "[edges][nvrtc]") {
  const nvrtc::CompiledSource source = nvrtc::compile(
      "#include \"value.h\"\n"
      "extern \"C\" __global__ void put(int* x) { *x = kValue + MORE; }",
      {.output = nvrtc::Output::ptx,
       .options = {"-DMORE=4000"},
       .headers = {{"value.h", "constexpr int kValue = 321;"}}});
  CHECK(contains(text_of(source), "4321"));
}

TEST_CASE("Source that does not compile is refused with the compiler's log", "[edges][nvrtc]") {
  const Error error = refusal([] {
    static_cast<void>(
        nvrtc::compile("__global__ void broken(int* x) { *x = y; }\nint z = w;\n", {.label = "broken.cu"}));
  });
  CHECK(error.code() == ErrorCode::invalid);
  INFO(error.sentence());
  CHECK(contains(error.sentence(), "NVRTC does not compile the source"));
  CHECK(contains(error.sentence(), "broken.cu(1): error: identifier \"y\" is undefined"));
  CHECK(contains(error.sentence(), "broken.cu(2): error: identifier \"w\" is undefined"));
  CHECK(error.contexts() == std::vector<std::string>{"compiling the source \"broken.cu\""});
}

TEST_CASE("What NVRTC warns of is kept beside the code", "[edges][nvrtc]") {
  const nvrtc::CompiledSource source =
      nvrtc::compile("extern \"C\" __global__ void odd(int* x) { int unused; *x = 1; }");
  CHECK(contains(source.log(), "unused"));
}

TEST_CASE("A name expression or an option or an architecture that is none is refused", "[edges][nvrtc]") {
  const auto code = [](nvrtc::CompileOptions options) {
    return refusal([&] { static_cast<void>(nvrtc::compile(kScale, options)); }).code();
  };
  CHECK(code({.kernels = {"missing<float>"}}) == ErrorCode::invalid);
  CHECK(code({.options = {"--no-such-option"}}) == ErrorCode::invalid);
  CHECK(code({.architecture = 30}) == ErrorCode::unsupported);
  const Error error = refusal([] { static_cast<void>(nvrtc::compile(kScale, {.architecture = 12345})); });
  CHECK(contains(error.sentence(), "The architecture is 12345; this NVRTC knows "));
}

TEST_CASE("An option that names an architecture or leaves no code is refused", "[edges][nvrtc]") {
  const auto sentence = [](const char* option) {
    const Error error = refusal([&] { static_cast<void>(nvrtc::compile(kScale, {.options = {option}})); });
    CHECK(error.code() == ErrorCode::invalid);
    return error.sentence();
  };
  CHECK(sentence("--gpu-architecture=sm_90a") ==
        "The option \"--gpu-architecture=sm_90a\" names an architecture; CompileOptions::architecture does.");
  CHECK(contains(sentence("-arch=sm_80"), "names an architecture"));
  CHECK(sentence("-dlto") == "The option \"-dlto\" leaves no code that can be loaded.");
}

TEST_CASE("A text for NVRTC that has a zero in it is refused", "[edges][nvrtc]") {
  const std::string zero("\0", 1);
  const auto sentence = [&](const std::string& source, nvrtc::CompileOptions options) {
    const Error error = refusal([&] { static_cast<void>(nvrtc::compile(source, std::move(options))); });
    CHECK(error.code() == ErrorCode::invalid);
    return error.sentence();
  };
  CHECK(sentence("int x;" + zero + "garbage((", {}) == "The source has a zero at byte 6; it is a text.");
  CHECK(contains(sentence(kScale, {.options = {"-DX=1" + zero}}), "The option has a zero"));
  CHECK(contains(sentence(kScale, {.kernels = {"scale<float>" + zero}}), "The name of a kernel has a zero"));
  CHECK(contains(sentence(kScale, {.headers = {{.name = "a.h", .text = zero}}}), "The header \"a.h\" has a zero"));
}

TEST_CASE("A lowered name is known of the kernels that were asked for alone", "[edges][nvrtc]") {
  const nvrtc::CompiledSource source =
      nvrtc::compile(kScale, {.label = "scale.cu", .kernels = {"scale<float>", "scale<int>"}});
  CHECK(source.lowered_name("scale<float>") != source.lowered_name("scale<int>"));
  const Error error = refusal([&] { static_cast<void>(source.lowered_name("scale<double>")); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() ==
        "The source \"scale.cu\" is compiled for no kernel called \"scale<double>\"; CompileOptions::kernels has 2.");
}

TEST_CASE("A spec with an image takes no compiled source", "[edges][nvrtc]") {
  const nvrtc::CompiledSource source = nvrtc::compile(kScale, {.label = "scale.cu", .kernels = {"scale<float>"}});
  const Error error = refusal([&] { static_cast<void>(source.spec(scale_spec())); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() ==
        "The spec of \"scale<float>\" has the image \"scale.cu\" already; its code is that of the source "
        "\"scale.cu\".");
}

}  // namespace weft::test
