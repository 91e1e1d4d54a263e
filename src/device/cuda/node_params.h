#pragma once

#include "device/cuda/primary_context.h"

#include <vector>

namespace weft::cuda {

[[nodiscard]] CUlaunchAttribute cluster_attribute(const Dim3& cluster) noexcept;

/// Gives a kernel node of a graph what its parameters have no place for: its cluster and its cooperation.
[[nodiscard]] DeviceStatus set_attributes(PrimaryContext& context, CUgraphNode handle, const Node& node) noexcept;

/// A seam node as the driver takes it. Points into the node that it is made from.
class NodeParams {
 public:
  NodeParams(const Node& node, CUcontext context);
  NodeParams(const NodeParams&) = delete;
  NodeParams& operator=(const NodeParams&) = delete;

  /// ok, or why the node cannot be handed to the driver.
  DeviceStatus status() const noexcept { return status_; }
  [[nodiscard]] CUgraphNodeParams* native() noexcept { return &params_; }

 private:
  void describe(const FillNode& fill, CUcontext context);
  void describe(const CopyNode& copy, CUcontext context);
  void describe(const KernelNode& kernel, CUcontext context);

  DeviceStatus status_;
  CUgraphNodeParams params_{};  ///< All zero: the driver requires it of unused bytes.
  std::vector<void*> arguments_;
};

}  // namespace weft::cuda
