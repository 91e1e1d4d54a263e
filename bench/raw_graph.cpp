#include "raw_graph.h"

#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

namespace weft::bench {

void cuda_check(cudaError_t error, std::source_location where) {
  if (error == cudaSuccess) return;
  throw Error(ErrorCode::failed, fmt::format("The raw twin's call in {}, line {}, fails: {} ({}).", where.file_name(),
                                             where.line(), cudaGetErrorString(error), cudaGetErrorName(error)));
}

DeviceFloats device_floats(std::size_t count) {
  void* memory = nullptr;
  cuda_check(cudaMalloc(&memory, count * sizeof(float)));
  DeviceFloats result(static_cast<float*>(memory));
  cuda_check(cudaMemset(result.get(), 0, count * sizeof(float)));
  return result;
}

DeviceFloats device_floats(std::span<const float> values) {
  DeviceFloats result = device_floats(values.size());
  cuda_check(cudaMemcpy(result.get(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
  return result;
}

ShippedKernel::ShippedKernel(const KernelSpec& spec)
    : rule_(spec.launch), block_{spec.block.x, spec.block.y, spec.block.z} {
  cudaLibrary_t library = nullptr;
  cuda_check(cudaLibraryLoadData(&library, spec.image.bytes.data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  library_.reset(library);
  cudaKernel_t kernel = nullptr;
  cuda_check(cudaLibraryGetKernel(&kernel, library, spec.symbol.c_str()));
  function_ = kernel;
}

dim3 ShippedKernel::grid(std::initializer_list<std::uint64_t> workload) const {
  const Grid grid = rule_(std::span(workload.begin(), workload.size())).grid;
  const auto narrow = [](std::uint64_t blocks) { return static_cast<unsigned int>(blocks); };
  return {narrow(grid.x), narrow(grid.y), narrow(grid.z)};
}

RawGraph::RawGraph() {
  cudaGraph_t graph = nullptr;
  cuda_check(cudaGraphCreate(&graph, 0));
  graph_.reset(graph);
}

cudaGraphNode_t RawGraph::kernel(const void* function, dim3 grid, dim3 block,
                                 std::initializer_list<const void*> arguments, const Nodes& after) {
  std::vector<void*> values;
  for (const void* argument : arguments) values.push_back(const_cast<void*>(argument));
  cudaKernelNodeParams params{};
  params.func = const_cast<void*>(function);
  params.gridDim = grid;
  params.blockDim = block;
  params.kernelParams = values.data();
  if (next_ < nodes_.size()) {
    cuda_check(cudaGraphKernelNodeSetParams(nodes_[next_], &params));
  } else {
    cuda_check(cudaGraphAddKernelNode(&nodes_.emplace_back(), graph_.get(), after.data(), after.size(), &params));
  }
  return nodes_[next_++];
}

cudaGraphNode_t RawGraph::zero(float* to, std::size_t floats) {
  cudaMemsetParams params{};
  params.dst = to;
  params.elementSize = sizeof(float);
  params.width = floats;
  params.height = 1;
  if (next_ < nodes_.size()) {
    cuda_check(cudaGraphMemsetNodeSetParams(nodes_[next_], &params));
  } else {
    cuda_check(cudaGraphAddMemsetNode(&nodes_.emplace_back(), graph_.get(), nullptr, 0, &params));
  }
  return nodes_[next_++];
}

CudaHandle<cudaGraphExec_t> RawGraph::instantiate() const {
  cudaGraphExec_t executable = nullptr;
  cuda_check(cudaGraphInstantiate(&executable, graph_.get(), 0));
  return CudaHandle<cudaGraphExec_t>(executable);
}

}  // namespace weft::bench
