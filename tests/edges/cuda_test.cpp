#include "catch.h"
#include "device/host/host_device.h"
#include "device/seam.h"
#include "loaded_kernel.h"
#include <weft/cuda.h>

#include <cuda.h>

#include <cstdint>
#include <vector>

// weft::kernel reads no more than a function's type and address, so functions of the host stand for kernels here. A
// CUDA test runs real ones.

namespace weft::test {

namespace {

enum class Mode : std::uint16_t { plain };
struct Row {
  float values[3];
};
struct Options {
  std::uint64_t stride;
  float* bias;
};

void mixed(const float*, double*, const void*, float4*, Row*, std::uint32_t, std::int64_t, float, bool, Mode, __half,
           __nv_bfloat16, Options, CUtensorMap) {}
void scale(const float*, float*, std::uint64_t) {}
void another(const float*, float*, std::uint64_t) {}
template <class T>
void fill(T*, T) {}

Parameter binding(Access access, std::string name) {
  return {.kind = ParameterKind::binding, .size = 8, .access = access, .element_size = 4, .name = std::move(name)};
}

/// A spec of `scale` with its parameters said.
KernelSpec scale_spec() {
  KernelSpec spec{.symbol = "scale", .block = {32}};
  spec.parameters = {binding(Access::read, "x"),
                     binding(Access::write, "y"),
                     {.kind = ParameterKind::index, .size = 8, .name = "count"}};
  return spec;
}

template <class Change>
Error scale_refusal(Change&& change) {
  KernelSpec spec = scale_spec();
  change(spec);
  return refusal([&] { static_cast<void>(kernel(&scale, spec)); });
}

}  // namespace

TEST_CASE("A kernel function without said parameters gives them by its type", "[edges][cuda-interop]") {
  const KernelSpec spec = kernel(&mixed, {.symbol = "mixed"});
  using enum ParameterKind;
  const std::vector<Parameter> expected{
      {.kind = binding, .size = 8, .access = Access::read, .element_size = 4},
      {.kind = binding, .size = 8, .access = Access::read_write, .element_size = 8},
      {.kind = binding, .size = 8, .access = Access::read, .element_size = 1},
      {.kind = binding, .size = 8, .access = Access::read_write, .element_size = 16},
      {.kind = binding, .size = 8, .access = Access::read_write, .element_size = 12, .alignment = 4},
      {.kind = scalar, .size = 4},
      {.kind = scalar, .size = 8},
      {.kind = scalar, .size = 4},
      {.kind = scalar, .size = 1},
      {.kind = scalar, .size = 2},
      {.kind = scalar, .size = 2},
      {.kind = scalar, .size = 2},
      {.kind = bytes, .size = 16},
      {.kind = bytes, .size = 128}};
  REQUIRE(spec.parameters.size() == expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    INFO("parameter " << i);
    CHECK(spec.parameters[i] == expected[i]);
  }
  CHECK(spec.image.bytes.empty());
  CHECK(spec.image.native.function == reinterpret_cast<const void*>(&mixed));
  CHECK(spec.image.native.resolve != nullptr);
}

TEST_CASE("Each kernel function and each instance of a template is a kernel of its own", "[edges][cuda-interop]") {
  const auto function = [](const KernelSpec& spec) { return spec.image.native.function; };
  CHECK(function(kernel(&scale, {.symbol = "k"})) != function(kernel(&another, {.symbol = "k"})));
  CHECK(function(kernel(&fill<float>, {.symbol = "k"})) != function(kernel(&fill<double>, {.symbol = "k"})));
  CHECK(kernel(&fill<double>, {.symbol = "k"}).parameters[1].size == 8);
}

TEST_CASE("Parameters that the spec says are kept where they agree with the function", "[edges][cuda-interop]") {
  const KernelSpec given = scale_spec();
  CHECK(kernel(&scale, given).parameters == given.parameters);

  KernelSpec open = given;
  for (Parameter& parameter : open.parameters) parameter.size = 0;
  open.parameters[0].element_size = 1;
  CHECK(kernel(&scale, open).parameters == given.parameters);

  KernelSpec aligned = given;
  aligned.parameters[0].alignment = 16;
  CHECK(kernel(&scale, aligned).parameters == aligned.parameters);
}

TEST_CASE("Parameters that contradict the function are refused by name", "[edges][cuda-interop]") {
  const auto refuses = [](std::string_view sentence, auto&& change) {
    const Error error = scale_refusal(change);
    INFO(error.what());
    CHECK(error.code() == ErrorCode::invalid);
    CHECK(error.sentence() == sentence);
    REQUIRE(error.contexts().size() == 1);
    CHECK(error.contexts().front() == "describing the kernel function \"scale\"");
  };
  refuses("The spec has 2 parameters; the function declares 3.", [](KernelSpec& spec) { spec.parameters.pop_back(); });
  refuses("The spec makes parameter 2 (\"count\") of kind binding; the function declares an integer there.",
          [](KernelSpec& spec) { spec.parameters[2] = binding(Access::read, "count"); });
  refuses("The spec makes parameter 1 (\"y\") of kind scalar; the function declares a pointer there.",
          [](KernelSpec& spec) { spec.parameters[1].kind = ParameterKind::scalar; });
  refuses("The spec makes parameter 0 (\"x\") of kind bytes; the function declares a pointer to const there.",
          [](KernelSpec& spec) { spec.parameters[0].kind = ParameterKind::bytes; });
  refuses("The spec gives parameter 2 (\"count\") 4 bytes; the function declares 8.",
          [](KernelSpec& spec) { spec.parameters[2].size = 4; });
  refuses("The spec gives parameter 0 (\"x\") the access write; the function declares a pointer to const there.",
          [](KernelSpec& spec) { spec.parameters[0].access = Access::write; });
  refuses("The spec gives parameter 0 (\"x\") the access read_write; the function declares a pointer to const there.",
          [](KernelSpec& spec) { spec.parameters[0].access = Access::read_write; });
  refuses("The spec has the image \"mine\" already.", [](KernelSpec& spec) {
    static constexpr std::byte kByte{1};
    spec.image = {.bytes = {&kByte, 1}, .label = "mine"};
  });
}

TEST_CASE("A kernel function that is null or has no name is refused", "[edges][cuda-interop]") {
  void (*const none)(float*) = nullptr;
  CHECK(refusal([&] { static_cast<void>(kernel(none, {.symbol = "none"})); }).sentence() == "The function is null.");
  CHECK(refusal([] { static_cast<void>(kernel(&scale, {})); }).sentence() ==
        "The spec has neither a label nor a symbol.");
}

TEST_CASE("A struct or a floating-point scalar is no index", "[edges][cuda-interop]") {
  KernelSpec spec = kernel(&mixed, {.symbol = "mixed"});
  spec.image = {};
  spec.parameters[7].kind = ParameterKind::index;
  const Error error = refusal([&] { static_cast<void>(kernel(&mixed, spec)); });
  CHECK(error.sentence() == "The spec makes parameter 7 of kind index; the function declares a scalar there.");
}

TEST_CASE("A kernel function runs by its host reference on the host device", "[edges][cuda-interop][host-only]") {
  KernelSpec spec = kernel(
      &scale, {.symbol = "scale", .block = {32}, .host = HostKernel{.run = [](const HostLaunch& launch) {
                                                   for (std::uint64_t i = 0; i < launch.get<std::uint64_t>(2); ++i)
                                                     launch.get<float*>(1)[i] = 2 * launch.get<const float*>(0)[i];
                                                 }}});
  CHECK(spec.host->parameter_sizes == std::vector<std::uint32_t>{8, 8, 8});
  Seam seam(make_host_device());
  const SeamKernel loaded = seam.kernel(spec);
  const DeviceAddress x = seam.memory_of(std::vector<float>{1, 2, 3});
  const DeviceAddress y = seam.memory_of(std::vector<float>{0, 0, 0});
  const UniqueGraph graph = seam.graph();
  seam.add(graph, loaded.node({1}, x, y, std::uint64_t{3}));
  seam.run(graph);
  CHECK(seam.values<float>(y, 3) == std::vector<float>{2, 4, 6});
}

TEST_CASE("CUDA's 2-byte types are elements and scalars", "[edges][cuda-interop]") {
  STATIC_REQUIRE(DTypeOf<__half>::value == DType::f16);
  STATIC_REQUIRE(DTypeOf<__nv_bfloat16>::value == DType::bf16);
  STATIC_REQUIRE(Element<__half>);
  STATIC_REQUIRE(ScalarValue<__half>);
  STATIC_REQUIRE(ScalarValue<__nv_bfloat16>);
  const Scalar half(__float2half(1.5f));
  CHECK(half.bytes == std::vector<std::byte>{std::byte{0x00}, std::byte{0x3e}});
  const Scalar brain(__float2bfloat16(1.5f));
  CHECK(brain.bytes == std::vector<std::byte>{std::byte{0xc0}, std::byte{0x3f}});
}

}  // namespace weft::test
