#include "graph_builder.h"

#include "error_context.h"

#include <spdlog/fmt/fmt.h>

#include <cstring>
#include <variant>

namespace weft {

namespace {

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

}  // namespace

BuiltGraph build_graph(const std::shared_ptr<DeviceApi>& api, const SlotPlan& plan,
                       std::span<const DeviceAddress> addresses) {
  BuiltGraph built{create_graph(api), {}, {}};
  built.nodes.reserve(plan.operations.size());
  std::vector<Edge> edges;
  for (std::size_t i = 0; i < plan.operations.size(); ++i) {
    const Operation& operation = plan.operations[i];
    in_context(
        [&] { return fmt::format("adding node {} (\"{}\") of graph \"{}\"", i, operation.label, plan.topology.title); },
        [&] {
          allow_shared_memory(*api, operation);
          edges.clear();
          for (const std::uint32_t from : plan.dependencies[i]) edges.push_back({built.nodes[from], false});
          NodeHandle node{};
          check(api->add_node(built.graph.get(), std::visit(NodeMaker(addresses), operation.action), edges, node),
                "add a graph node");
          built.nodes.push_back(node);
        });
  }
  built.executable = instantiate(api, built.graph.get());
  return built;
}

}  // namespace weft
