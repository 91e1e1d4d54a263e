#include "device/cuda/node_params.h"

#include "device/cuda/cuda_code.h"
#include "device/cuda/native_handle.h"

namespace weft::cuda {

CUlaunchAttribute cluster_attribute(const Dim3& cluster) noexcept {
  CUlaunchAttribute attribute{};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim.x = cluster.x;
  attribute.value.clusterDim.y = cluster.y;
  attribute.value.clusterDim.z = cluster.z;
  return attribute;
}

DeviceStatus set_attributes(PrimaryContext& context, CUgraphNode handle, const Node& node) noexcept {
  const auto* const launch = std::get_if<KernelNode>(&node);
  if (launch == nullptr) return {};
  const auto set = [&](CUlaunchAttribute attribute) {
    return context.call(context.driver().GraphKernelNodeSetAttribute, handle, attribute.id,
                        static_cast<const CUkernelNodeAttrValue*>(&attribute.value));
  };
  DeviceStatus status;
  // Code that is compiled for a cluster brings it along.
  const bool is_compiled_in = native<const CudaKernel*>(launch->kernel)->compiled.cluster.has_value();
  if (launch->cluster != Dim3{} && !is_compiled_in) status = set(cluster_attribute(launch->cluster));
  if (status.ok() && launch->cooperative) {
    CUlaunchAttribute cooperative{};
    cooperative.id = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;
    cooperative.value.cooperative = 1;
    status = set(cooperative);
  }
  return status;
}

NodeParams::NodeParams(const Node& node, CUcontext context) {
  std::visit([&](const auto& kind) { describe(kind, context); }, node);
}

// Elements of one byte take any address and any width, and are as fast as wider ones.
void NodeParams::describe(const FillNode& fill, CUcontext context) {
  params_.type = CU_GRAPH_NODE_TYPE_MEMSET;
  params_.memset.dst = fill.destination;
  params_.memset.value = fill.value;
  params_.memset.elementSize = 1;
  params_.memset.width = fill.bytes;
  params_.memset.height = 1;
  params_.memset.ctx = context;
}

void NodeParams::describe(const CopyNode& copy, CUcontext context) {
  params_.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  params_.memcpy.copyCtx = context;
  CUDA_MEMCPY3D& line = params_.memcpy.copyParams;
  line.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
  line.srcDevice = copy.source;
  line.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
  line.dstDevice = copy.destination;
  line.WidthInBytes = copy.bytes;
  line.Height = 1;
  line.Depth = 1;
}

void NodeParams::describe(const KernelNode& node, CUcontext context) {
  if (node.kernel == KernelHandle::none) {
    status_ = {StatusCode::invalid, 0, "the node names no kernel"};
    return;
  }
  const CudaKernel& kernel = *weft::cuda::native<const CudaKernel*>(node.kernel);

  // Pointers to the single parameters: the driver accepts a packed block that is too small without a word.
  arguments_.reserve(kernel.compiled.parameters.size());
  for (const auto& parameter : kernel.compiled.parameters) {
    if (std::size_t{parameter.offset} + parameter.size > node.parameters.size()) {
      status_ = {StatusCode::invalid, 0, "the parameter block is shorter than the compiled layout"};
      return;
    }
    arguments_.push_back(const_cast<std::byte*>(node.parameters.data() + parameter.offset));
  }

  params_.type = CU_GRAPH_NODE_TYPE_KERNEL;
  CUDA_KERNEL_NODE_PARAMS_v3& launch = params_.kernel;
  launch.kern = kernel.kernel;  // With `func` null: a kernel belongs to no context, so the node names one.
  launch.ctx = context;
  launch.gridDimX = node.grid.x;
  launch.gridDimY = node.grid.y;
  launch.gridDimZ = node.grid.z;
  launch.blockDimX = node.block.x;
  launch.blockDimY = node.block.y;
  launch.blockDimZ = node.block.z;
  launch.sharedMemBytes = node.dynamic_shared_bytes;
  launch.kernelParams = arguments_.data();
}

}  // namespace weft::cuda
