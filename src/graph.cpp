#include "graph_state.h"
#include <weft/error.h>
#include <weft/graph.h>

#include <spdlog/fmt/fmt.h>

#include <atomic>
#include <utility>

namespace weft {

namespace {

std::uint64_t next_graph_id() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

GraphState& GraphAccess::state(const Graph& graph) {
  if (graph.state_ == nullptr) throw Error(ErrorCode::invalid, "The graph is moved from.");
  return *graph.state_;
}

Graph::Graph(const Context& context, std::string label)
    : state_(std::make_unique<GraphState>(GraphState{next_graph_id(), context, std::move(label), {}, {}})) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

DeviceTensor Graph::tensor(const TensorDesc& desc, AllocationOptions options) {
  GraphState& graph = GraphAccess::state(*this);
  if (desc.is_empty())
    throw Error(ErrorCode::invalid,
                fmt::format("The tensor \"{}\" of a graph is empty: {}.", options.label, to_string(desc)));
  const auto allocation = static_cast<std::uint32_t>(graph.allocations.size());
  graph.allocations.push_back({std::move(options.label), desc.bytes(), options.placement, nullptr});
  return DeviceTensorAccess::make(desc, graph.id, allocation, 0);
}

const Context& Graph::context() const { return GraphAccess::state(*this).context; }

}  // namespace weft
