#pragma once

#include "context_state.h"
#include "graph_plan.h"
#include "late_plan.h"
#include "operation.h"
#include "tracked_memory.h"
#include <weft/graph.h>
#include <weft/plan/arena.h>
#include <weft/plan/topology.h>
#include <weft/prepared.h>
#include <weft/request_form.h>
#include <weft/tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace weft {

/// An input or output of a slot.
struct SlotTensor {
  TensorDesc desc;
  Location place;  ///< Where the graph's commands find it.
  Location host;   ///< Where the host writes or reads it in a host form: staging, or `place` itself.
};

/// What one request form runs.
struct FormPlan {
  RequestForm form;
  GraphPlan graph;
  Topology topology;
};

/// Everything about a slot but its addresses: which nodes its graphs have, in which order, and where its memory stands.
/// Immutable; keeps weights, code and the memory of others alive.
struct SlotPlan {
  /// The graph's allocations, then staging, tables, control block and completion word.
  std::vector<Allocation> allocations;
  ArenaPlan device;  ///< By allocation; 0 bytes for what stands elsewhere.
  ArenaPlan pinned;
  std::uint64_t requested_bytes = 0;
  std::uint64_t requested_allocations = 0;

  std::vector<SlotTensor> inputs;
  std::vector<SlotTensor> outputs;
  std::uint32_t input_table = 0;   ///< Allocation of the entries that device inputs are copied by; see own::CopyEntry.
  std::uint32_t output_table = 0;  ///< The same of device outputs.
  std::uint32_t word = 0;          ///< Allocation of the completion word, which stands in neither arena.
  std::uint32_t control = 0;       ///< Allocation of what completion counts in.
  std::vector<TrackedUse> uses;    ///< What every run does to memory outside the slot.
  /// Weights and code: what a run needs until it has ended, whoever has gone. None of them keeps the context, which
  /// keeps them then; memory outside the slot does, and itself ends behind what is in flight on it.
  std::shared_ptr<const std::vector<std::shared_ptr<const void>>> run_owners;

  LatePlan late;                ///< What requests bring beside inputs.
  std::vector<FormPlan> forms;  ///< In the order of PrepareOptions::forms.
  /// Whether the host can write or read the tensor, in staging or in place.
  [[nodiscard]] bool is_host_visible(const SlotTensor& tensor) const noexcept {
    const Allocation& allocation = allocations[tensor.host.allocation];
    return allocation.is_private() && allocation.placement == Placement::shared;
  }
  /// Whether the host writes inputs in place in the allocation.
  [[nodiscard]] bool is_host_written(std::uint32_t allocation) const noexcept;
  [[nodiscard]] bool has_host_written_outputs() const noexcept;
  [[nodiscard]] bool has_device_inputs() const noexcept;
  [[nodiscard]] bool has_device_outputs() const noexcept;
};

/// Plans a slot of an inference graph: adds copies in, copies out and the completion, orders everything, and places
/// memory. Errors: `invalid` for a graph without operations, inputs and outputs that are not tensors of it or its
/// context, or no forms or one listed twice.
[[nodiscard]] SlotPlan plan_slot(const ContextState& context, const InferenceGraph& inference,
                                 const PrepareOptions& options);

/// Whether slots of both plans can be stamped from one template: their graphs have the same topologies.
[[nodiscard]] bool same_shape(const SlotPlan& a, const SlotPlan& b);

}  // namespace weft
