#include "graph_builder.h"

#include "error_context.h"
#include "reclaim.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <cstring>
#include <optional>
#include <variant>

namespace weft {

namespace {

/// Makes an operation into a node at given addresses.
class NodeMaker {
 public:
  explicit NodeMaker(std::span<const DeviceAddress> addresses) : addresses_(addresses) {}

  Node operator()(const FillOperation& fill) const {
    return FillNode{address(fill.destination), fill.bytes, fill.value};
  }

  Node operator()(const CopyOperation& copy) const {
    return CopyNode{address(copy.destination), address(copy.source), copy.bytes};
  }

  Node operator()(const CapturedOperation&) const { throw Error(ErrorCode::internal, "A call is no single node."); }

  Node operator()(const DispatchOperation& dispatch) const {
    KernelNode node{dispatch.kernel->handle,          dispatch.grid,       dispatch.kernel->spec.block,
                    dispatch.dynamic_shared_bytes,    dispatch.parameters, dispatch.kernel->spec.cluster,
                    dispatch.kernel->spec.cooperative};
    for (const PointerSlot& pointer : dispatch.pointers) {
      const DeviceAddress target = address(pointer.target);
      std::memcpy(&node.parameters[pointer.block_offset], &target, sizeof(target));
    }
    return node;
  }

 private:
  [[nodiscard]] DeviceAddress address(const Location& location) const {
    return addresses_[location.allocation] + location.offset;
  }

  std::span<const DeviceAddress> addresses_;
};

// A launch beyond the default needs the kernel's consent, which all users of the kernel share.
void allow_shared_memory(DeviceApi& api, const Operation& operation) {
  const auto* dispatch = std::get_if<DispatchOperation>(&operation.action);
  if (dispatch == nullptr || dispatch->dynamic_shared_bytes == 0) return;
  if (dispatch->dynamic_shared_bytes + dispatch->kernel->compiled.static_shared_bytes <=
      api.limits().default_shared_bytes)
    return;
  check(api.raise_dynamic_shared(dispatch->kernel->handle, dispatch->dynamic_shared_bytes),
        "raise a kernel's dynamic shared memory");
}

/// Runs `body(i)` for each operation of a plan, with its position in the context of errors.
template <class Body>
void for_each_operation(const char* doing, const GraphPlan& plan, Body&& body) {
  for (std::size_t i = 0; i < plan.operations.size(); ++i) {
    in_context(
        [&] {
          return fmt::format("{} node {} (\"{}\") of graph \"{}\"", doing, i, plan.operations[i].label, plan.title);
        },
        [&] { body(i); });
  }
}

}  // namespace

Node make_node(const Operation& operation, std::span<const DeviceAddress> addresses) {
  return std::visit(NodeMaker(addresses), operation.action);
}

void GraphTemplate::find_edges(const GraphPlan& plan, std::size_t operation, std::vector<Edge>& edges) const {
  edges.clear();
  for (const std::uint32_t from : plan.dependencies[operation]) {
    const auto call = last_.find(from);
    if (call == last_.end()) {
      edges.push_back({nodes_[from], plan.is_programmatic(from, operation)});
    } else {
      for (const NodeHandle node : call->second) edges.push_back({node, false});
    }
  }
}

GraphTemplate::GraphTemplate(const std::shared_ptr<DeviceApi>& api, const GraphPlan& plan,
                             std::span<const DeviceAddress> addresses, std::span<const UniqueGraph> captured)
    : api_(api), graph_(create_graph(api)) {
  nodes_.reserve(plan.operations.size());
  auto next_call = captured.begin();
  std::vector<Edge> edges;
  for_each_operation("adding", plan, [&](std::size_t i) {
    allow_shared_memory(*api_, plan.operations[i]);
    find_edges(plan, i, edges);
    NodeHandle node{};
    if (is_captured(plan.operations[i])) {
      check(api_->add_captured(graph_.get(), next_call->get(), edges, last_[i]), "add a call's nodes");
      ++next_call;
    } else {
      check(api_->add_node(graph_.get(), make_node(plan.operations[i], addresses), edges, node), "add a graph node");
    }
    nodes_.push_back(node);
  });
}

void GraphTemplate::point_at(const GraphPlan& plan, std::span<const DeviceAddress> addresses) {
  for_each_operation("setting", plan, [&](std::size_t i) {
    allow_shared_memory(*api_, plan.operations[i]);  // Another slot may bring another kernel.
    check(api_->set_node(graph_.get(), nodes_[i], make_node(plan.operations[i], addresses)), "set a graph node");
  });
}

UniqueExecutable GraphTemplate::instantiate() const {
  return take_or_reclaim(std::nullopt, *api_, [&] { return weft::instantiate(api_, graph_.get()); });
}

}  // namespace weft
