#include "catch.h"
#include "cuda/gpu.h"
#include "device/seam.h"
#include "loaded_kernel.h"
#include <weft/triton.h>

#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

// Loading code and what the driver tells of it.

namespace weft::test {
namespace {

constexpr std::string_view kPtx = R"(
.version 7.0
.target sm_80
.address_size 64
.visible .entry mixed(.param .u64 a, .param .u8 b, .param .align 8 .b8 c[24], .param .u16 d)
.maxntid 96, 1, 1
{
  .shared .align 4 .b8 scratch[640];
  .reg .u32 %r<3>;
  mov.u32 %r1, scratch;
  ld.volatile.shared.u32 %r2, [%r1];
  st.volatile.shared.u32 [%r1+4], %r2;
  ret;
}
)";

std::string read_image(const std::string& name) {
  std::ifstream file(WEFT_TEST_DATA "/" + name, std::ios::binary);
  std::string image{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(!image.empty());
  return image;
}

std::vector<CompiledKernel::ParameterLayout::Kind> kinds_of(const CompiledKernel& compiled) {
  std::vector<CompiledKernel::ParameterLayout::Kind> kinds;
  for (const auto& parameter : compiled.parameters) kinds.push_back(parameter.kind);
  return kinds;
}

CodeImage image_of(std::string_view text) { return {std::as_bytes(std::span(text)), "text"}; }

TEST_CASE("PTX text in a span without a final zero is loaded and its layout told", "[cuda][cuda-only]") {
  const Gpu gpu;
  ModuleHandle module{};
  KernelHandle kernel{};
  CompiledKernel compiled;
  // What follows the text in memory must not be read.
  const std::string followed = std::string(kPtx) + "this is no PTX";
  must(gpu.api->load(image_of(std::string_view(followed).substr(0, kPtx.size())), module));
  must(gpu.api->find_kernel(module, {.symbol = "mixed"}, kernel, compiled));

  using Layout = CompiledKernel::ParameterLayout;
  CHECK(compiled.parameters == std::vector<Layout>{{0, 8}, {8, 1}, {16, 24}, {40, 2}});
  CHECK(compiled.max_threads_per_block == 96);
  CHECK(compiled.static_shared_bytes == 640);
  CHECK(compiled.binary_version == 80);  // Of its PTX, whatever the driver has made of it.

  KernelHandle again{};
  must(gpu.api->find_kernel(module, {.symbol = "mixed"}, again, compiled));
  CHECK(again == kernel);
  must(gpu.api->unload(module));
}

TEST_CASE("A symbol that the image lacks is refused", "[cuda][cuda-only]") {
  const Gpu gpu;
  KernelHandle kernel{};
  CompiledKernel compiled;
  const DeviceStatus status = gpu.api->find_kernel(gpu.module, {.symbol = "weft_absent"}, kernel, compiled);
  CHECK(status.code == StatusCode::invalid);
  CHECK(status.detail == std::string("the image has no such symbol"));
  CHECK(kernel == KernelHandle::none);
}

TEST_CASE("An image without code for the GPU is unsupported", "[cuda][cuda-only]") {
  const Gpu gpu;
  const bool hopper = gpu.api->limits().compute_capability == 90;
  std::string ptx(kPtx);
  ptx.replace(ptx.find("7.0"), 3, "8.6");
  ptx.replace(ptx.find("sm_80"), 5, hopper ? "sm_100a" : "sm_90a");  // Runs on one architecture alone.
  ModuleHandle module{};
  const DeviceStatus status = gpu.api->load(image_of(ptx), module);
  INFO("code " << status.native << " " << status.detail);
  CHECK(status.code == StatusCode::unsupported);
  CHECK(contains(status.detail, "the image"));
  CHECK(module == ModuleHandle::none);
  CHECK(gpu.api->load(image_of(""), module).code == StatusCode::invalid);
  CHECK(gpu.api->health().ok());
}

TEST_CASE("A Triton cubin tells its pointers and runs with null scratch", "[cuda][cuda-only]") {
  using enum CompiledKernel::ParameterLayout::Kind;
  if (open_device(Device::cuda())->limits().compute_capability / 10 != 9) return;  // The cubin is for sm_90.
  Seam seam(open_device(Device::cuda()));
  const SeamKernel axpy = seam.kernel(triton::kernel(WEFT_TEST_DATA "/triton/axpy.json", {}));
  CHECK(kinds_of(axpy.compiled) == std::vector{pointer, pointer, pointer, value, value, pointer, pointer});

  constexpr std::int32_t kCount = 300;  // More than the 256 elements of one program.
  std::vector<float> x(kCount);
  std::vector<float> y(kCount);
  std::vector<float> expected(kCount);
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i);
    y[i] = static_cast<float>(1000 * i);
    expected[i] = 2 * x[i] + y[i];
  }
  const DeviceAddress from = seam.memory_of(x);
  const DeviceAddress add = seam.memory_of(y);
  const DeviceAddress to = seam.memory_of(std::vector<float>(kCount, -1));
  const UniqueGraph graph = seam.graph();
  seam.add(graph, axpy.node({2}, from, add, to, 2.0f, kCount, DeviceAddress{0}, DeviceAddress{0}));
  seam.run(graph);
  CHECK(seam.values<float>(to, kCount) == expected);
}

TEST_CASE("A Triton cubin's parameters are held against the spec", "[cuda][cuda-only]") {
  const std::shared_ptr<DeviceApi> api = open_device(Device::cuda());
  if (api->limits().compute_capability / 10 != 9) return;
  const Parameter binding{.kind = ParameterKind::binding, .size = 8, .element_size = 4};
  const auto scalar = [](std::uint32_t size) { return Parameter{.size = size}; };
  const KernelSpec good = triton::kernel(WEFT_TEST_DATA "/triton/axpy.json",
                                         {.parameters = {binding, binding, binding, scalar(4), scalar(4)}});
  const auto load = [&](const KernelSpec& spec) { return load_kernel(*api, load_module(api, spec.image), spec); };
  CHECK(load(good)->compiled.parameters.size() == 7);
  KernelSpec shown = good;  // The two hidden pointers as the scalars that they would otherwise be.
  shown.hidden_pointers = 0;
  shown.parameters.insert(shown.parameters.end(), {scalar(8), scalar(8)});
  CHECK(takes_null_only(*load(shown), 5));
  KernelSpec bad = good;
  bad.parameters[2] = {.kind = ParameterKind::index, .size = 8, .name = "o"};
  const Error error = refusal([&] { static_cast<void>(load(bad)); });
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(error.sentence() == "The spec makes parameter 2 (\"o\") an index; the compiled kernel takes a pointer there.");
}

TEST_CASE("An nvcc cubin leaves 64-bit parameters unknown", "[cuda][cuda-only]") {
  using enum CompiledKernel::ParameterLayout::Kind;
  if (open_device(Device::cuda())->limits().compute_capability / 10 != 9) return;
  Seam seam(open_device(Device::cuda()));
  const std::string image = read_image("cubin/plain.cubin");
  CHECK(kinds_of(seam.kernel({.image = image_of(image), .symbol = "plain"}).compiled) ==
        std::vector{unknown, unknown, unknown, value, value});
}

TEST_CASE("The compiled layout of weft's own kernels is that of their host references", "[cuda][cuda-only]") {
  const Gpu gpu;
  for (const KernelSpec& spec : {own::fill_spec(), own::copy_spec(), own::complete_spec(), own::copy_complete_spec(),
                                 own::copy_table_spec(), own::copy_table_complete_spec()}) {
    INFO(spec.symbol);
    const Gpu::Kernel kernel = gpu.kernel(spec);
    std::vector<std::uint32_t> sizes;
    for (const auto& parameter : kernel.compiled.parameters) sizes.push_back(parameter.size);
    REQUIRE(spec.host.has_value());
    CHECK(sizes == spec.host->parameter_sizes);
    CHECK(kernel.compiled.max_threads_per_block == spec.host->max_threads_per_block);
    CHECK(kernel.compiled.static_shared_bytes == spec.host->static_shared_bytes);
  }
}

TEST_CASE("Dynamic shared memory is raised to the limit and never lowered", "[cuda][cuda-only]") {
  const Gpu gpu;
  const std::uint32_t most = gpu.api->limits().max_shared_bytes;
  const Gpu::Kernel copy = gpu.kernel(own::copy_spec());
  const DeviceAddress memory = gpu.allocate(512);
  KernelNode node = launch_of(copy, {1, 1, 1}, memory, memory + 256, std::uint64_t{16});
  node.dynamic_shared_bytes = most;
  GraphHandle graph{};
  NodeHandle handle{};
  must(gpu.api->create_graph(graph));

  CHECK(gpu.api->add_node(graph, node, {}, handle).code == StatusCode::invalid);
  CHECK(gpu.api->raise_dynamic_shared(copy.handle, most + 1).code == StatusCode::invalid);
  must(gpu.api->raise_dynamic_shared(copy.handle, most));
  must(gpu.api->raise_dynamic_shared(copy.handle, 1024));
  CHECK(gpu.api->add_node(graph, node, {}, handle).ok());
  gpu.run(graph);

  must(gpu.api->destroy_graph(graph));
  must(gpu.api->free(gpu.stream, memory));
}

}  // namespace
}  // namespace weft::test
