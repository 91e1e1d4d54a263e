#pragma once

#include <weft/context.h>
#include <weft/device_tensor.h>
#include <weft/export.h>
#include <weft/region.h>
#include <weft/tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {

struct GraphState;

/// An unprepared graph: operations and storage, without memory or order yet. Fragments record into it.
///
/// Move-only; used by one thread at a time. A moved-from graph refuses every call with `invalid`.
class WEFT_API Graph {
 public:
  /// `label` is for messages and the topology.
  explicit Graph(const Context& context, std::string label = {});
  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  ~Graph();

  /// New storage of this graph for one tensor, zeroed when a slot is made. Errors: `invalid` for an empty tensor.
  [[nodiscard]] DeviceTensor tensor(const TensorDesc& desc, AllocationOptions options = {});
  template <Element T>
  [[nodiscard]] DeviceTensor tensor(Shape shape, AllocationOptions options = {}) {
    return tensor(TensorDesc(DTypeOf<T>::value, std::move(shape)), std::move(options));
  }

  [[nodiscard]] const Context& context() const;

 private:
  friend struct GraphAccess;
  std::unique_ptr<GraphState> state_;
};

/// What a slot runs: an unprepared graph, the tensors that a request fills, and those that it reads. weft adds the
/// copies and the completion when it prepares the slot.
struct InferenceGraph {
  Graph graph;
  std::vector<DeviceTensor> inputs;
  std::vector<DeviceTensor> outputs;
};

}  // namespace weft
