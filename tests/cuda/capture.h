#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace weft::test {

/// Ends the capture of a stream on which one node was queued; true when nothing has disturbed it.
inline bool end_capture_of_one_node(cudaStream_t stream) {
  cudaGraph_t graph = nullptr;
  std::size_t nodes = 0;
  const bool whole = cudaStreamEndCapture(stream, &graph) == cudaSuccess && graph != nullptr &&
                     cudaGraphGetNodes(graph, nullptr, &nodes) == cudaSuccess && nodes == 1;
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  static_cast<void>(cudaGetLastError());
  return whole;
}

}  // namespace weft::test
