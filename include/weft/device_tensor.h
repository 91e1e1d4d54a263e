#pragma once

#include <weft/export.h>
#include <weft/tensor.h>

#include <cstdint>
#include <utility>

namespace weft {

/// A tensor in device memory, or a promise of one: a tensor of an unprepared graph names its storage by (graph,
/// allocation), and has bytes and an address in each slot once the graph is prepared.
///
/// A plain handle; copies mean the same bytes. Keeps nothing alive.
class DeviceTensor {
 public:
  [[nodiscard]] const TensorDesc& desc() const noexcept { return desc_; }

 private:
  friend struct DeviceTensorAccess;
  DeviceTensor(TensorDesc desc, std::uint64_t graph, std::uint32_t allocation, std::uint64_t offset)
      : desc_(std::move(desc)), graph_(graph), allocation_(allocation), offset_(offset) {}

  TensorDesc desc_;
  std::uint64_t graph_;       // Id of the graph whose allocation it is.
  std::uint32_t allocation_;  // Index in that graph.
  std::uint64_t offset_;      // Bytes from the allocation's start.
};

}  // namespace weft
