#include "catch.h"
#include "cuda/gpu.h"

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
  CHECK(compiled.binary_version == gpu.api->limits().compute_capability);

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

TEST_CASE("The compiled layout of weft's own kernels is that of their host references", "[cuda][cuda-only]") {
  const Gpu gpu;
  for (const KernelSpec& spec : {own::fill_spec(), own::copy_spec(), own::complete_spec(), own::copy_complete_spec()}) {
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
