#include "catch.h"
#include "device/cuda/cuda_code.h"
#include "device/cuda/native_handle.h"
#include "device/cuda/node_params.h"

#include <cstring>

// How a seam node becomes the driver's: decided without a GPU.

namespace weft::cuda {
namespace {

// Never used as a pointer here.
CUcontext some_context() { return native<CUcontext>(std::uint64_t{0xC0}); }

TEST_CASE("A fill becomes one memset of single bytes whatever its size and address", "[device]") {
  constexpr std::uint64_t kBytes = (std::uint64_t{5} << 30) + 3;
  NodeParams params(FillNode{0x1001, kBytes, 0xA5}, some_context());
  REQUIRE(params.status().ok());
  const CUgraphNodeParams& node = *params.native();
  CHECK(node.type == CU_GRAPH_NODE_TYPE_MEMSET);
  CHECK(node.memset.dst == 0x1001);
  CHECK(node.memset.elementSize == 1);
  CHECK(node.memset.width == kBytes);
  CHECK(node.memset.height == 1);
  CHECK(node.memset.value == 0xA5);
  CHECK(node.memset.ctx == some_context());
}

TEST_CASE("A copy becomes one line over unified addresses", "[device]") {
  NodeParams params(CopyNode{0x2000, 0x1000, 300}, some_context());
  REQUIRE(params.status().ok());
  const CUgraphNodeParams& node = *params.native();
  CHECK(node.type == CU_GRAPH_NODE_TYPE_MEMCPY);
  CHECK(node.memcpy.copyCtx == some_context());
  const CUDA_MEMCPY3D& line = node.memcpy.copyParams;
  CHECK(line.dstMemoryType == CU_MEMORYTYPE_UNIFIED);
  CHECK(line.srcMemoryType == CU_MEMORYTYPE_UNIFIED);
  CHECK(line.dstDevice == 0x2000);
  CHECK(line.srcDevice == 0x1000);
  CHECK(line.WidthInBytes == 300);
  CHECK(line.Height == 1);
  CHECK(line.Depth == 1);
}

TEST_CASE("A kernel node names its kernel and context and points to each parameter", "[device]") {
  CudaKernel kernel;
  kernel.kernel = native<CUkernel>(std::uint64_t{0xF0});
  kernel.compiled.parameters = {{0, 8}, {8, 1}, {16, 24}};
  KernelNode launch;
  launch.kernel = to_handle<KernelHandle>(&kernel);
  launch.grid = {2, 3, 4};
  launch.block = {5, 6, 7};
  launch.dynamic_shared_bytes = 1024;
  launch.parameters.resize(40);
  launch.parameters[8] = std::byte{42};
  const Node node = launch;

  SECTION("with a whole parameter block") {
    NodeParams params(node, some_context());
    REQUIRE(params.status().ok());
    CHECK(params.native()->type == CU_GRAPH_NODE_TYPE_KERNEL);
    const CUDA_KERNEL_NODE_PARAMS_v3& native_node = params.native()->kernel;
    CHECK(native_node.func == nullptr);
    CHECK(native_node.kern == kernel.kernel);
    CHECK(native_node.ctx == some_context());
    CHECK(native_node.gridDimX == 2);
    CHECK(native_node.gridDimY == 3);
    CHECK(native_node.gridDimZ == 4);
    CHECK(native_node.blockDimX == 5);
    CHECK(native_node.blockDimY == 6);
    CHECK(native_node.blockDimZ == 7);
    CHECK(native_node.sharedMemBytes == 1024);
    CHECK(native_node.extra == nullptr);
    const std::byte* block = std::get<KernelNode>(node).parameters.data();
    CHECK(native_node.kernelParams[0] == block);
    CHECK(native_node.kernelParams[1] == block + 8);
    CHECK(native_node.kernelParams[2] == block + 16);
  }
  SECTION("unless the block ends within a parameter") {
    KernelNode shorter = launch;
    shorter.parameters.pop_back();
    const Node short_node = shorter;
    const DeviceStatus status = NodeParams(short_node, some_context()).status();
    CHECK(status.code == StatusCode::invalid);
    CHECK(status.detail == std::string("the parameter block is shorter than the compiled layout"));
  }
  SECTION("unless it names no kernel") {
    CHECK(NodeParams(KernelNode{}, some_context()).status().code == StatusCode::invalid);
  }
}

TEST_CASE("The bytes of a node that the driver reserves are zero", "[device]") {
  NodeParams params(FillNode{0x1000, 16, 1}, some_context());
  const CUgraphNodeParams& node = *params.native();
  constexpr std::size_t kEnd = sizeof(node.reserved1);
  std::vector<unsigned char> bytes(kEnd);
  std::memcpy(bytes.data(), &node.reserved1, kEnd);
  for (std::size_t i = sizeof(node.memset); i < kEnd; ++i) CHECK(bytes[i] == 0);
  for (const int reserved : node.reserved0) CHECK(reserved == 0);
  CHECK(node.reserved2 == 0);
}

}  // namespace
}  // namespace weft::cuda
