#pragma once

#include "tracked_memory.h"
#include <weft/device_tensor.h>

#include <cstdint>
#include <memory>
#include <utility>

namespace weft {

/// Opens a DeviceTensor to the files that submit and record.
struct DeviceTensorAccess {
  [[nodiscard]] static DeviceTensor in_graph(const TensorDesc& desc, std::uint64_t graph, std::uint32_t allocation,
                                             std::uint64_t offset) {
    return {desc, graph, allocation, offset};
  }
  /// `memory` is null for an empty tensor.
  [[nodiscard]] static DeviceTensor in_memory(const TensorDesc& desc, std::shared_ptr<TrackedMemory> memory,
                                              std::uint64_t offset, Completion completion) {
    return {desc, std::move(memory), offset, std::move(completion)};
  }

  [[nodiscard]] static bool is_in_graph(const DeviceTensor& tensor) noexcept { return tensor.graph_ != 0; }
  [[nodiscard]] static std::uint64_t graph(const DeviceTensor& tensor) noexcept { return tensor.graph_; }
  [[nodiscard]] static std::uint32_t allocation(const DeviceTensor& tensor) noexcept { return tensor.allocation_; }
  [[nodiscard]] static const std::shared_ptr<TrackedMemory>& memory(const DeviceTensor& tensor) noexcept {
    return tensor.memory_;
  }
  [[nodiscard]] static std::uint64_t offset(const DeviceTensor& tensor) noexcept { return tensor.offset_; }
};

}  // namespace weft
