#include "graph_state.h"
#include "refusal.h"
#include "unique_id.h"
#include <weft/error.h>
#include <weft/graph.h>

#include <spdlog/fmt/fmt.h>

#include <limits>
#include <utility>

namespace weft {

GraphState& GraphAccess::state(const Graph& graph) {
  if (graph.state_ == nullptr) throw Error(ErrorCode::invalid, "The graph is moved from.");
  return *graph.state_;
}

Graph::Graph(const Context& context, std::string label)
    : state_(std::make_unique<GraphState>(GraphState{next_unique_id(), context, std::move(label), {}, {}})) {}
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
  const auto allocation = static_cast<std::uint32_t>(graph.allocations.size());
  graph.allocations.push_back({std::move(options.label), desc.bytes(), options.placement, nullptr});
  return DeviceTensorAccess::make(desc, graph.id, allocation, 0);
}

const Context& Graph::context() const { return GraphAccess::state(*this).context; }

}  // namespace weft
