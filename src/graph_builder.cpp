#include "graph_builder.h"

#include "error_context.h"
#include "reclaim.h"

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

  Node operator()(const DispatchOperation& dispatch) const {
    KernelNode node{dispatch.kernel->handle, dispatch.grid, dispatch.kernel->spec.block, dispatch.dynamic_shared_bytes,
                    dispatch.parameters};
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

GraphTemplate::GraphTemplate(const std::shared_ptr<DeviceApi>& api, const GraphPlan& plan,
                             std::span<const DeviceAddress> addresses)
    : api_(api), graph_(create_graph(api)) {
  nodes_.reserve(plan.operations.size());
  std::vector<Edge> edges;
  for_each_operation("adding", plan, [&](std::size_t i) {
    allow_shared_memory(*api_, plan.operations[i]);
    edges.clear();
    for (const std::uint32_t from : plan.dependencies[i]) edges.push_back({nodes_[from], false});
    NodeHandle node{};
    check(api_->add_node(graph_.get(), std::visit(NodeMaker(addresses), plan.operations[i].action), edges, node),
          "add a graph node");
    nodes_.push_back(node);
  });
}

void GraphTemplate::point_at(const GraphPlan& plan, std::span<const DeviceAddress> addresses) {
  for_each_operation("setting", plan, [&](std::size_t i) {
    allow_shared_memory(*api_, plan.operations[i]);  // Another slot may bring another kernel.
    check(api_->set_node(graph_.get(), nodes_[i], std::visit(NodeMaker(addresses), plan.operations[i].action)),
          "set a graph node");
  });
}

UniqueExecutable GraphTemplate::instantiate() const {
  return take_or_reclaim(std::nullopt, *api_, [&] { return weft::instantiate(api_, graph_.get()); });
}

}  // namespace weft
