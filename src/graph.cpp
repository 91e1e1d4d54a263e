#include "call_recorder.h"
#include "context_state.h"
#include "definition_state.h"
#include "device/own_kernels.h"
#include "device_tensor_access.h"
#include "error_context.h"
#include "graph_state.h"
#include "overlap.h"
#include "own_dispatch.h"
#include "refusal.h"
#include "unique_id.h"
#include "validation.h"
#include <weft/error.h>
#include <weft/graph.h>
#include <weft/model.h>
#include <weft/prepared.h>

#include <spdlog/fmt/fmt.h>

#include <limits>
#include <utility>
#include <variant>

namespace weft {

namespace {

Location require_place(const GraphState& graph, const char* what, const DeviceTensor& tensor) {
  if (!DeviceTensorAccess::is_in_graph(tensor))
    refuse(fmt::format("The {} is a tensor in memory; Graph::bind makes it one of the graph.", what));
  if (DeviceTensorAccess::graph(tensor) != graph.id) refuse(fmt::format("The {} belongs to another graph.", what));
  if (tensor.desc().is_empty()) refuse(fmt::format("The {} is empty: {}.", what, to_string(tensor.desc())));
  if (!tensor.desc().is_contiguous())
    refuse(fmt::format("The {} is not contiguous: {}.", what, to_string(tensor.desc())));
  return {DeviceTensorAccess::allocation(tensor), DeviceTensorAccess::offset(tensor)};
}

ValidationScope scope_of(const GraphState& graph, const DefinitionState& kernels) {
  return {{graph.id, "graph", "this is graph"},
          graph.allocations,
          {kernels.session, "definition", "this definition comes from session"},
          kernels.kernels,
          ContextAccess::state(graph.context)->api().limits(),
          false,
          kernels.late_scalars};
}

void require_apart(const GraphState& graph, const std::vector<ByteUse>& uses) {
  for (std::size_t a = 0; a < uses.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      if (!conflicts(uses[b], uses[a])) continue;
      refuse(
          fmt::format("Two arguments overlap in allocation \"{}\": bytes {} to {} ({}) and bytes {} to {} ({}). "
                      "Graph::dispatch_aliasing is for kernels that are safe to run so.",
                      graph.allocations[uses[a].allocation].label, uses[b].begin, uses[b].end,
                      to_string(uses[b].access), uses[a].begin, uses[a].end, to_string(uses[a].access)));
    }
  }
}

Operation validate_graph_dispatch(const GraphState& graph, const ModelDefinition& kernels, const Command& command) {
  if (!(kernels.context() == graph.context))
    refuse("The kernel's definition belongs to another context than the graph.");
  if (std::holds_alternative<Fill>(command.action())) refuse("The command is a fill; Graph::fill adds one.");
  if (std::holds_alternative<Captured>(command.action()))
    refuse("The command is a captured call; Graph::call adds one.");
  return validate_command(scope_of(graph, DefinitionAccess::state(kernels)), command, graph.operations.size());
}

}  // namespace

GraphState& GraphAccess::state(const Graph& graph) {
  if (graph.state_ == nullptr) throw Error(ErrorCode::invalid, "The graph is moved from.");
  return *graph.state_;
}

Graph::Graph(const Context& context, std::string label)
    : state_(std::make_unique<GraphState>(GraphState{next_unique_id(), context, std::move(label)})) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

DeviceTensor Graph::tensor(const TensorDesc& desc, AllocationOptions options) {
  GraphState& graph = GraphAccess::state(*this);
  if (desc.is_empty())
    throw Error(ErrorCode::invalid,
                fmt::format("The tensor \"{}\" of a graph is empty: {}.", options.label, to_string(desc)));
  if (desc.bytes() > std::numeric_limits<std::int64_t>::max()) {
    refuse(fmt::format("The tensor \"{}\" of a graph has {} bytes; an allocation has at most {}.", options.label,
                       desc.bytes(), std::numeric_limits<std::int64_t>::max()));
  }
  require_enumerator(fmt::format("placement of the tensor \"{}\"", options.label), options.placement,
                     Placement::shared);
  const auto allocation = static_cast<std::uint32_t>(graph.allocations.size());
  graph.allocations.push_back(
      {.label = std::move(options.label), .bytes = desc.bytes(), .placement = options.placement});
  return DeviceTensorAccess::in_graph(desc, graph.id, allocation, 0);
}

DeviceTensor Graph::bind(const DeviceTensor& tensor) {
  GraphState& graph = GraphAccess::state(*this);
  if (DeviceTensorAccess::is_in_graph(tensor)) refuse("The tensor is of a graph already.");
  const std::shared_ptr<TrackedMemory>& memory = DeviceTensorAccess::memory(tensor);
  if (memory == nullptr) refuse(fmt::format("The tensor {} is empty.", to_string(tensor.desc())));
  if (&memory->home() != ContextAccess::state(graph.context).get()) refuse("The tensor belongs to another context.");
  static_cast<void>(tensor.wait(Deadline::max()));
  const std::uint32_t allocation = find_or_add_memory(graph.allocations, memory);
  return DeviceTensorAccess::in_graph(tensor.desc(), graph.id, allocation, DeviceTensorAccess::offset(tensor));
}

void Graph::fill(const DeviceTensor& tensor, std::uint8_t value) {
  GraphState& graph = GraphAccess::state(*this);
  const Location place = require_place(graph, "target of the fill", tensor);
  const std::uint64_t bytes = tensor.desc().bytes();
  graph.operations.push_back({.label = {},
                              .action = FillOperation{place, bytes, value},
                              .uses = {{{place.allocation, place.offset, place.offset + bytes, Access::write}}, {}},
                              .role = {}});
}

void Graph::copy(const DeviceTensor& source, const DeviceTensor& destination) {
  GraphState& graph = GraphAccess::state(*this);
  const Location from = require_place(graph, "source of the copy", source);
  const Location to = require_place(graph, "destination of the copy", destination);
  if (source.desc().dtype() != destination.desc().dtype()) {
    refuse(fmt::format("The copy's source is {} and its destination {}; they have one element type.",
                       to_string(source.desc()), to_string(destination.desc())));
  }
  const std::uint64_t bytes = source.desc().bytes();
  if (bytes != destination.desc().bytes()) {
    refuse(fmt::format("The copy's source {} has {} bytes and its destination {} has {}.", to_string(source.desc()),
                       bytes, to_string(destination.desc()), destination.desc().bytes()));
  }
  if (from == to) return;
  if (from.allocation == to.allocation && overlap(from.offset, bytes, to.offset, bytes)) {
    refuse(fmt::format(
        "The copy's source, bytes {} to {} of allocation \"{}\", overlaps its destination, bytes {} to {}.",
        from.offset, from.offset + bytes, graph.allocations[from.allocation].label, to.offset, to.offset + bytes));
  }
  Operation operation{"copy", CopyOperation{to, from, bytes}, {copy_uses(to, from, bytes), {}}, OwnRole::copy};
  if (bytes <= kCopyKernelBytes) {
    operation.action =
        own_dispatch(ContextAccess::state(graph.context)->own_kernels().copy, own::copy_grid(bytes), {to, from, bytes});
  }
  graph.operations.push_back(std::move(operation));
}

void Graph::dispatch(const ModelDefinition& kernels, const Command& command) {
  GraphState& graph = GraphAccess::state(*this);
  Operation operation = validate_graph_dispatch(graph, kernels, command);
  require_apart(graph, operation.uses.uses);
  graph.operations.push_back(std::move(operation));
}

void Graph::dispatch_aliasing(Trusted, const ModelDefinition& kernels, const Command& command) {
  GraphState& graph = GraphAccess::state(*this);
  graph.operations.push_back(validate_graph_dispatch(graph, kernels, command));
}

void Graph::call(const Command& command) {
  GraphState& graph = GraphAccess::state(*this);
  if (!std::holds_alternative<Captured>(command.action()))
    refuse("The command is no captured call; Graph::dispatch and Graph::fill add the others.");
  const HandleOwner owner{graph.id, "graph", "this is graph"};
  const ValidationScope scope{owner, graph.allocations, owner, {}, ContextAccess::state(graph.context)->api().limits()};
  std::vector<Operation> operations{validate_command(scope, command, graph.operations.size())};
  require_apart(graph, operations.front().uses.uses);
  graph.operations.reserve(graph.operations.size() + 1);
  add_workspaces(operations, graph.allocations);
  graph.operations.push_back(std::move(operations.front()));
}

const Context& Graph::context() const { return GraphAccess::state(*this).context; }

}  // namespace weft
