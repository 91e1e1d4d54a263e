#include "catch.h"
#include "device/host/host_kernel.h"
#include "device/own_kernels.h"
#include "device/seam.h"
#include "support/test_kernels.h"

namespace weft::test {

namespace {

Parameter struct_of(std::uint32_t size) { return {.kind = ParameterKind::bytes, .size = size}; }

}  // namespace

TEST_CASE("A kernel's compiled layout is that of its spec", "[device]") {
  Seam seam(open_test_device());
  for (const KernelSpec& spec : {increment_spec(), xor_bytes_spec(), slow_copy_spec(), digest_spec()}) {
    INFO(spec.symbol);
    const CompiledKernel expected = host_layout(spec);
    const CompiledKernel compiled = seam.kernel(spec).compiled;
    CHECK(compiled.parameters == expected.parameters);
    CHECK(compiled.max_threads_per_block == expected.max_threads_per_block);
    CHECK(compiled.static_shared_bytes == expected.static_shared_bytes);
  }
}

TEST_CASE("A symbol can be found twice in a module and has one layout", "[device]") {
  Seam seam(open_test_device());
  const KernelSpec spec = increment_spec();
  ModuleHandle module{};
  REQUIRE(seam->load(spec.image, module).ok());
  KernelHandle first{};
  KernelHandle second{};
  CompiledKernel compiled;
  CompiledKernel again;
  REQUIRE(seam->find_kernel(module, spec, first, compiled).ok());
  REQUIRE(seam->find_kernel(module, spec, second, again).ok());
  CHECK(compiled.parameters.size() == 2);
  CHECK(again == compiled);
  REQUIRE(seam->unload(module).ok());
}

TEST_CASE("A kernel node beyond a limit is refused when it is added", "[device]") {
  Seam seam(open_test_device());
  const SeamKernel increment_kernel = seam.kernel(increment_spec());
  const KernelNode good = increment_kernel.node({1}, seam.memory(4), std::uint32_t{1});
  REQUIRE(seam.try_add(good).ok());
  const auto refuses = [&](auto&& spoil) {
    KernelNode node = good;
    spoil(node);
    return seam.try_add(node).code == StatusCode::invalid;
  };
  CHECK(refuses([](KernelNode& node) { node.grid.x = 0; }));
  CHECK(refuses([](KernelNode& node) { node.grid.z = 0; }));
  CHECK(refuses([](KernelNode& node) { node.grid.x = 0x80000000u; }));
  CHECK(refuses([](KernelNode& node) { node.grid.y = 65536; }));
  CHECK(refuses([](KernelNode& node) { node.grid.z = 65536; }));
  CHECK(refuses([](KernelNode& node) { node.block.y = 0; }));
  CHECK(refuses([](KernelNode& node) { node.block = {1025, 1, 1}; }));
  CHECK(refuses([](KernelNode& node) { node.block = {1, 1, 65}; }));
  CHECK(refuses([](KernelNode& node) { node.block = {32, 33, 1}; }));
  CHECK(refuses([](KernelNode& node) { node.dynamic_shared_bytes = 49153; }));
  CHECK(refuses([](KernelNode& node) { node.parameters.pop_back(); }));
}

TEST_CASE("A block beyond the kernel's launch bounds is refused", "[device]") {
  Seam seam(open_test_device());
  KernelNode node = seam.kernel(own::complete_spec()).node({1}, seam.memory(8), seam.pinned(8).device);
  CHECK(seam.try_add(node).ok());
  node.block = {2, 1, 1};
  CHECK(seam.try_add(node).code == StatusCode::invalid);
}

TEST_CASE("Dynamic shared memory can be raised and is never lowered", "[device]") {
  Seam seam(open_test_device());
  const SeamKernel increment_kernel = seam.kernel(increment_spec());
  KernelNode node = increment_kernel.node({1}, seam.memory_of(std::vector<std::uint32_t>{1}), std::uint32_t{1});
  node.dynamic_shared_bytes = 100'000;
  CHECK(seam.try_add(node).code == StatusCode::invalid);
  REQUIRE(seam->raise_dynamic_shared(increment_kernel.handle, 100'000).ok());
  CHECK(seam.try_add(node).ok());
  REQUIRE(seam->raise_dynamic_shared(increment_kernel.handle, 50'000).ok());
  CHECK(seam.try_add(node).ok());
  CHECK(seam->raise_dynamic_shared(increment_kernel.handle, seam->limits().max_shared_bytes + 1).code ==
        StatusCode::invalid);
}

TEST_CASE("The host layout aligns each parameter by its size", "[device][host-only]") {
  KernelSpec spec;
  spec.parameters = {{.size = 1},   {.kind = ParameterKind::binding, .size = 8},
                     {.size = 2},   {.size = 4},
                     struct_of(12), struct_of(24),
                     {.size = 1},   struct_of(3)};
  const CompiledKernel layout = host_layout(spec);
  std::vector<std::uint32_t> offsets;
  for (const auto& parameter : layout.parameters) offsets.push_back(parameter.offset);
  CHECK(offsets == std::vector<std::uint32_t>{0, 8, 16, 20, 24, 40, 64, 65});
  CHECK(layout.parameter_bytes() == 68);
  CHECK(host_layout({}).parameter_bytes() == 0);
}

TEST_CASE("The host layout takes sizes and bounds from the host reference", "[device][host-only]") {
  KernelSpec spec;
  spec.parameters = {{.size = 4}};
  spec.host = HostKernel{.run = {}, .parameter_sizes = {8, 4}, .max_threads_per_block = 128, .static_shared_bytes = 64};
  const CompiledKernel layout = host_layout(spec);
  using Layout = CompiledKernel::ParameterLayout;
  CHECK(layout.parameters == std::vector<Layout>{{0, 8}, {8, 4}});
  CHECK(layout.max_threads_per_block == 128);
  CHECK(layout.static_shared_bytes == 64);
}

TEST_CASE("The blocks that a device holds at once follow its threads and its shared memory", "[device]") {
  Seam seam(open_test_device());
  const SeamKernel kernel = seam.kernel(increment_spec());
  const std::uint64_t multiprocessors = seam->limits().multiprocessors;
  const auto resident = [&](Dim3 block, std::uint32_t shared, Dim3 cluster) {
    std::uint64_t blocks = 0;
    REQUIRE(seam->max_resident_blocks({.kernel = kernel.handle,
                                       .grid = cluster,
                                       .block = block,
                                       .dynamic_shared_bytes = shared,
                                       .parameters = {},
                                       .cluster = cluster},
                                      blocks)
                .ok());
    return blocks;
  };
  CHECK(resident({1024, 1, 1}, 0, {}) >= multiprocessors);
  CHECK(resident({1024, 1, 1}, 0, {}) < resident({32, 1, 1}, 0, {}));
  CHECK(resident({32, 1, 1}, seam->limits().max_shared_bytes, {}) == multiprocessors);
  if (seam->limits().compute_capability < 90) return;
  const std::uint64_t in_clusters = resident({32, 1, 1}, 0, {4, 1, 1});
  CHECK(in_clusters > 0);
  CHECK(in_clusters % 4 == 0);
}

TEST_CASE("A node whose grid is not made of whole clusters is refused", "[device][host-only]") {
  Seam seam(open_test_device());
  KernelNode node = seam.kernel(increment_spec()).node({6, 4, 2}, seam.memory(4), std::uint32_t{1});
  node.cluster = {3, 2, 1};
  CHECK(seam.try_add(node).ok());
  for (const Dim3 cluster : {Dim3{4, 1, 1}, Dim3{1, 3, 1}, Dim3{1, 1, 4}, Dim3{0, 1, 1}}) {
    node.cluster = cluster;
    CHECK(seam.try_add(node).code == StatusCode::invalid);
  }
}

TEST_CASE("A node keeps its cluster and its cooperation when it is set", "[device][host-only]") {
  Seam seam(open_test_device());
  KernelNode node = seam.kernel(increment_spec()).node({4}, seam.memory(4), std::uint32_t{1});
  node.cluster = {2, 1, 1};
  const UniqueGraph graph = seam.graph();
  const NodeHandle handle = seam.add(graph, node);
  node.grid.x = 8;
  CHECK(seam->set_node(graph.get(), handle, node).ok());
  node.cooperative = true;
  CHECK(seam->set_node(graph.get(), handle, node).code == StatusCode::invalid);
  node.cooperative = false;
  node.cluster = {};
  CHECK(seam->set_node(graph.get(), handle, node).code == StatusCode::invalid);
}

}  // namespace weft::test
