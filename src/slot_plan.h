#pragma once

#include "context_state.h"
#include "graph_state.h"
#include "operation.h"
#include <weft/plan/arena.h>
#include <weft/plan/schedule.h>
#include <weft/plan/topology.h>
#include <weft/prepared.h>
#include <weft/tensor.h>

#include <cstdint>
#include <vector>

namespace weft {

/// Everything about a slot but its addresses: which nodes its graph has, in which order, and where its memory stands.
/// Immutable; keeps weights and code alive.
struct SlotPlan {
  /// The graph's allocations, then staging, control block and completion word.
  std::vector<Allocation> allocations;
  std::size_t graph_allocations = 0;                     ///< How many of them are the graph's.
  std::vector<Operation> operations;                     ///< weft's own among them; each after all that it depends on.
  std::vector<std::vector<std::uint32_t>> dependencies;  ///< Of each operation, ascending.
  ArenaPlan device;                                      ///< By allocation; 0 bytes for what stands elsewhere.
  ArenaPlan pinned;
  std::uint64_t requested_bytes = 0;
  std::uint64_t requested_allocations = 0;

  std::vector<TensorDesc> inputs;
  std::vector<TensorDesc> outputs;
  std::vector<std::uint32_t> input_staging;   ///< Allocation of each input's staging.
  std::vector<std::uint32_t> output_staging;  ///< Allocation of each output's staging.
  std::uint32_t word = 0;                     ///< Allocation of the completion word.

  Topology topology;
};

/// Plans a slot of an inference graph: adds copies in, copies out and the completion, orders everything, and places
/// memory. Errors: `invalid` for a graph without operations, or inputs and outputs that are not tensors of it.
[[nodiscard]] SlotPlan plan_slot(const ContextState& context, const InferenceGraph& inference,
                                 const PrepareOptions& options);

}  // namespace weft
