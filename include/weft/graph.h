#pragma once

#include <weft/command.h>
#include <weft/context.h>
#include <weft/device_tensor.h>
#include <weft/export.h>
#include <weft/region.h>
#include <weft/tensor.h>
#include <weft/trusted.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {

class ModelDefinition;
struct GraphState;

/// An unprepared graph: operations and storage, without memory or order yet. Fragments record into it, and commands of
/// its own join them.
///
/// Move-only; used by one thread at a time. A moved-from graph refuses every call with `invalid`. What an operation
/// does to bytes orders it, not its place in the list alone: see ModelDefinition::fragment. A refused call changes
/// nothing.
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
  /// A tensor in memory as one of this graph, which then keeps the memory, and the slot that it may lease. All slots
  /// that are prepared from the graph work on these bytes; weft orders their runs. Waits for the tensor's values.
  /// Errors: `invalid` for an empty tensor, one of another context, or one of a graph.
  [[nodiscard]] DeviceTensor bind(const DeviceTensor& tensor);

  /// Sets every byte of a tensor of this graph. Errors: `invalid` for a tensor that is not this graph's, is empty, or
  /// not contiguous.
  void fill(const DeviceTensor& tensor, std::uint8_t value);
  /// Copies a tensor of this graph to another. A copy onto itself adds nothing. Errors: `invalid` for tensors of other
  /// graphs, that are empty or not contiguous, differ in element type or size, or overlap in part.
  void copy(const DeviceTensor& source, const DeviceTensor& destination);
  /// Launches a kernel of `kernels`; the command's regions are those of this graph's tensors (DeviceTensor::region),
  /// and the positions in its `after` those of the graph's operations so far. Errors: `invalid`, as for a fragment's
  /// commands, and for bindings of which one is written and overlaps another.
  void dispatch(const ModelDefinition& kernels, const Command& command);
  /// The same, with bindings that overlap: the caller vouches that the kernel is safe to run so.
  void dispatch_aliasing(Trusted, const ModelDefinition& kernels, const Command& command);
  /// Adds a captured call; the command's regions are those of this graph's tensors, and the positions in its `after`
  /// those of the graph's operations so far. Errors: `invalid`, as for a fragment's commands, and for bindings of which
  /// one is written and overlaps another.
  void call(const Command& command);

  [[nodiscard]] const Context& context() const;

 private:
  friend struct GraphAccess;
  std::unique_ptr<GraphState> state_;
};

/// What a slot runs: an unprepared graph, the tensors that a request fills, and those that it reads. weft adds the
/// copies and the completion when it prepares the slot. Tensors may also be in memory outside the graph, of which each
/// slot then needs its own.
struct InferenceGraph {
  Graph graph;
  std::vector<DeviceTensor> inputs;
  std::vector<DeviceTensor> outputs;
};

}  // namespace weft
