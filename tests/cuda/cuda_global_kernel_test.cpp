#include "catch.h"
#include "cuda/global_kernels.h"
#include "device/registry.h"
#include "device/seam.h"
#include "loaded_kernel.h"

// Kernels of the program itself, whose handles its CUDA runtime gives.

namespace weft::test {
namespace {

struct Pair {
  std::uint16_t a;
  std::uint64_t b;
};

TEST_CASE("A kernel function of the program is found and computes", "[cuda][cuda-only]") {
  Seam seam(open_device(Device::cuda()));
  const SeamKernel kernel = seam.kernel(add_constant_spec());
  CHECK(kernel.compiled.max_threads_per_block == 64);
  const DeviceAddress x = seam.memory_of(std::vector<std::uint32_t>{1, 2, 3, 0xffffffff});
  const DeviceAddress y = seam.memory_of(std::vector<std::uint32_t>{9, 9, 9, 9, 9});
  const UniqueGraph graph = seam.graph();
  seam.add(graph, kernel.node({1}, x, y, std::uint64_t{4}, std::uint32_t{7}));
  seam.run(graph);
  CHECK(seam.values<std::uint32_t>(y, 5) == std::vector<std::uint32_t>{8, 9, 10, 6, 9});
}

TEST_CASE("Two instances of one kernel template are two kernels", "[cuda][cuda-only]") {
  Seam seam(open_device(Device::cuda()));
  const SeamKernel narrow = seam.kernel(add_constant_spec());
  const SeamKernel wide = seam.kernel(add_constant_64_spec());
  CHECK(narrow.handle != wide.handle);
  CHECK(narrow.compiled.parameters[3].size == 4);
  CHECK(wide.compiled.parameters[3].size == 8);
  const DeviceAddress x = seam.memory_of(std::vector<std::uint64_t>{0xffffffff});
  const DeviceAddress y = seam.memory_of(std::vector<std::uint64_t>{0});
  const UniqueGraph graph = seam.graph();
  seam.add(graph, wide.node({1}, x, y, std::uint64_t{1}, std::uint64_t{1}));
  seam.run(graph);
  CHECK(seam.values<std::uint64_t>(y, 1).front() == 0x100000000);
}

TEST_CASE("A kernel function of the program takes a struct by value", "[cuda][cuda-only]") {
  Seam seam(open_device(Device::cuda()));
  const SeamKernel kernel = seam.kernel(add_pair_spec());
  const DeviceAddress y = seam.memory_of(std::vector<std::uint64_t>{0});
  const UniqueGraph graph = seam.graph();
  seam.add(graph, kernel.node({1}, y, Pair{3, 1'000'000'000'000}));
  seam.run(graph);
  CHECK(seam.values<std::uint64_t>(y, 1).front() == 1'000'000'000'003);
}

TEST_CASE("The spec of a kernel function agrees with its compiled layout", "[cuda][cuda-only]") {
  const std::shared_ptr<DeviceApi> api = open_device(Device::cuda());
  for (const KernelSpec& spec : {add_constant_spec(), add_constant_64_spec(), add_pair_spec()}) {
    INFO(spec.label);
    CHECK(load_kernel(*api, load_module(api, spec.image), spec)->handle != KernelHandle::none);
  }
}

TEST_CASE("A function that is no kernel of the program is refused", "[cuda][cuda-only]") {
  const std::shared_ptr<DeviceApi> api = open_device(Device::cuda());
  const KernelSpec spec = no_kernel_spec();
  const Error error = refusal([&] { static_cast<void>(load_kernel(*api, load_module(api, spec.image), spec)); });
  INFO(error.what());
  CHECK(error.code() == ErrorCode::invalid);
  CHECK(contains(error.sentence(), "gives no kernel for the function"));
  CHECK(api->health().ok());
}

TEST_CASE("Kernels of the program survive the unloading of their module", "[cuda][cuda-only]") {
  Seam seam(open_device(Device::cuda()));
  const KernelSpec spec = add_constant_spec();
  for (int round = 0; round < 3; ++round) {
    ModuleHandle module{};
    KernelHandle kernel{};
    CompiledKernel compiled;
    REQUIRE(seam->load(spec.image, module).ok());
    REQUIRE(seam->find_kernel(module, spec, kernel, compiled).ok());
    REQUIRE(seam->unload(module).ok());
  }
}

}  // namespace
}  // namespace weft::test
