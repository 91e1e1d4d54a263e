#pragma once

#include <weft/kernel.h>

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <source_location>
#include <span>
#include <type_traits>
#include <vector>

namespace weft::bench {

/// Throws `failed`, naming the place, unless the CUDA runtime says success.
void cuda_check(cudaError_t error, std::source_location where = std::source_location::current());

struct CudaDelete {
  void operator()(float* memory) const noexcept { cudaFree(memory); }
  void operator()(cudaStream_t stream) const noexcept { cudaStreamDestroy(stream); }
  void operator()(cudaGraph_t graph) const noexcept { cudaGraphDestroy(graph); }
  void operator()(cudaGraphExec_t executable) const noexcept { cudaGraphExecDestroy(executable); }
  void operator()(cudaLibrary_t library) const noexcept { cudaLibraryUnload(library); }
};
struct PinnedDelete {
  void operator()(std::byte* memory) const noexcept { cudaFreeHost(memory); }
};

using DeviceFloats = std::unique_ptr<float, CudaDelete>;
using Pinned = std::unique_ptr<std::byte, PinnedDelete>;
template <class Handle>
using CudaHandle = std::unique_ptr<std::remove_pointer_t<Handle>, CudaDelete>;

/// Device memory of zeros.
[[nodiscard]] DeviceFloats device_floats(std::size_t count);
/// Device memory with these values.
[[nodiscard]] DeviceFloats device_floats(std::span<const float> values);

/// A kernel of weft's, out of the same compiled image.
class ShippedKernel {
 public:
  explicit ShippedKernel(const KernelSpec& spec);

  [[nodiscard]] const void* function() const noexcept { return function_; }
  [[nodiscard]] dim3 block() const noexcept { return block_; }
  [[nodiscard]] dim3 grid(std::initializer_list<std::uint64_t> workload) const;

 private:
  LaunchRule rule_;
  dim3 block_;
  CudaHandle<cudaLibrary_t> library_;
  const void* function_ = nullptr;
};

/// A graph, built node by node. After `rewind` the same sequence of calls sets the parameters of the nodes that are
/// there in place of adding nodes.
class RawGraph {
 public:
  using Nodes = std::vector<cudaGraphNode_t>;

  RawGraph();

  /// `arguments` point to the values, in the kernel's order.
  cudaGraphNode_t kernel(const void* function, dim3 grid, dim3 block, std::initializer_list<const void*> arguments,
                         const Nodes& after);
  cudaGraphNode_t zero(float* to, std::size_t floats);

  void rewind() noexcept { next_ = 0; }

  [[nodiscard]] CudaHandle<cudaGraphExec_t> instantiate() const;

 private:
  CudaHandle<cudaGraph_t> graph_;
  Nodes nodes_;
  std::size_t next_ = 0;
};

}  // namespace weft::bench
