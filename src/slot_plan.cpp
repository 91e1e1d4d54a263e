#include "slot_plan.h"

#include "device/own_kernels.h"
#include "refusal.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <variant>

namespace weft {

namespace {

// The control block: what weft_complete and weft_copy_complete count in, each on a line of its own.
constexpr std::uint64_t kCounterOffset = 0;
constexpr std::uint64_t kArrivalsOffset = 128;
constexpr std::uint64_t kControlBytes = 256;
constexpr std::uint64_t kWordBytes = 128;

/// A launch of one of weft's own kernels; each argument is a place or a scalar.
DispatchOperation own_dispatch(const std::shared_ptr<const LoadedKernel>& kernel, Dim3 grid,
                               const std::vector<std::variant<Location, std::uint64_t>>& arguments) {
  DispatchOperation dispatch{kernel, grid, 0, std::vector<std::byte>(kernel->compiled.parameter_bytes()), {}};
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto [offset, size] = kernel->compiled.parameters[i];
    if (const auto* place = std::get_if<Location>(&arguments[i])) {
      dispatch.pointers.push_back({offset, *place});
    } else {
      std::memcpy(&dispatch.parameters[offset], &std::get<std::uint64_t>(arguments[i]), size);
    }
  }
  return dispatch;
}

class SlotPlanner {
 public:
  SlotPlanner(const ContextState& context, const InferenceGraph& inference, const PrepareOptions& options)
      : context_(context), inference_(inference), graph_(GraphAccess::state(inference.graph)), options_(options) {}

  SlotPlan plan() {
    if (ContextAccess::state(graph_.context).get() != &context_) refuse("The graph belongs to another context.");
    if (graph_.operations.empty()) refuse(fmt::format("The graph \"{}\" has no commands.", graph_.label));
    require_own_tensors("inputs", inference_.inputs);
    require_own_tensors("outputs", inference_.outputs);
    plan_.allocations = graph_.allocations;
    count_requested();
    control_ = add_allocation("control", kControlBytes, Placement::device);
    plan_.word = add_allocation("completion word", kWordBytes, Placement::shared);
    for (const DeviceTensor& input : inference_.inputs) add_copy_in(input);
    add_commands();
    for (const DeviceTensor& output : inference_.outputs) add_copy_out(output);
    order();
    place();
    describe();
    return std::move(plan_);
  }

 private:
  void require_own_tensors(const char* what, const std::vector<DeviceTensor>& tensors) const {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (DeviceTensorAccess::graph(tensors[i]) != graph_.id)
        refuse(fmt::format("The tensor {}[{}] belongs to another graph.", what, i));
    }
  }

  void count_requested() {
    for (const Allocation& allocation : graph_.allocations) {
      if (allocation.weight != nullptr) continue;
      plan_.requested_bytes += allocation.bytes;
      ++plan_.requested_allocations;
    }
  }

  std::uint32_t add_allocation(std::string label, std::uint64_t bytes, Placement placement) {
    plan_.allocations.push_back({std::move(label), bytes, placement, nullptr});
    return static_cast<std::uint32_t>(plan_.allocations.size() - 1);
  }

  [[nodiscard]] bool by_kernel(std::uint64_t bytes) const {
    return options_.copies == CopyMethod::kernel ||
           (options_.copies == CopyMethod::automatic && bytes <= kCopyKernelBytes);
  }

  [[nodiscard]] Operation copy(std::string label, OwnRole role, Location destination, Location source,
                               std::uint64_t bytes) const {
    Operation operation{std::move(label), CopyOperation{destination, source, bytes}, {}, role};
    operation.uses.uses = {{source.allocation, source.offset, source.offset + bytes, Access::read},
                           {destination.allocation, destination.offset, destination.offset + bytes, Access::write}};
    if (by_kernel(bytes))
      operation.action = own_dispatch(context_.own_kernels().copy, own::copy_grid(bytes), {destination, source, bytes});
    return operation;
  }

  void add_copy_in(const DeviceTensor& input) {
    const Location target = DeviceTensorAccess::location(input);
    const std::string& label = graph_.allocations[target.allocation].label;
    plan_.inputs.push_back(input.desc());
    plan_.input_staging.push_back(add_allocation(label + " staging", input.desc().bytes(), Placement::shared));
    plan_.operations.push_back(
        copy("copy in " + label, OwnRole::copy_in, target, {plan_.input_staging.back(), 0}, input.desc().bytes()));
  }

  void add_copy_out(const DeviceTensor& output) {
    const Location source = DeviceTensorAccess::location(output);
    const std::string& label = graph_.allocations[source.allocation].label;
    plan_.outputs.push_back(output.desc());
    plan_.output_staging.push_back(add_allocation(label + " staging", output.desc().bytes(), Placement::shared));
    plan_.operations.push_back(
        copy("copy out " + label, OwnRole::copy_out, {plan_.output_staging.back(), 0}, source, output.desc().bytes()));
  }

  void add_commands() {
    const auto first = static_cast<std::uint32_t>(plan_.operations.size());
    for (Operation operation : graph_.operations) {
      for (std::uint32_t& earlier : operation.uses.after) earlier += first;
      const auto* fill = std::get_if<FillOperation>(&operation.action);
      if (fill != nullptr && !context_.api().limits().fill_nodes_on_pool_memory) {
        operation.action = own_dispatch(context_.own_kernels().fill, own::copy_grid(fill->bytes),
                                        {fill->destination, fill->bytes, std::uint64_t{fill->value}});
        operation.role = OwnRole::fill_kernel;
      }
      plan_.operations.push_back(std::move(operation));
    }
  }

  void order() {
    std::vector<CommandUses> uses;
    uses.reserve(plan_.operations.size());
    std::ranges::transform(plan_.operations, std::back_inserter(uses), &Operation::uses);
    schedule_ = schedule(uses, options_.order);
    plan_.dependencies.resize(plan_.operations.size());
    for (const ScheduleEdge& edge : schedule_.edges) plan_.dependencies[edge.to].push_back(edge.from);
    add_completion();
  }

  // The completion waits for everything. A copy-out kernel that everything else comes before can carry it; otherwise it
  // is a node of its own behind every sink.
  void add_completion() {
    const Location counter{control_, kCounterOffset};
    const Location arrivals{control_, kArrivalsOffset};
    const Location word{plan_.word, 0};
    Operation& last = plan_.operations.back();
    const auto* dispatch = std::get_if<DispatchOperation>(&last.action);
    if (last.role == OwnRole::copy_out && dispatch != nullptr &&
        schedule_.is_only_sink(static_cast<std::uint32_t>(plan_.operations.size() - 1))) {
      const Location destination = dispatch->pointers[0].target;
      const Location source = dispatch->pointers[1].target;
      const std::uint64_t bytes = plan_.outputs.back().bytes();
      last.label += " and complete";
      last.action = own_dispatch(context_.own_kernels().copy_complete, own::copy_grid(bytes),
                                 {destination, source, bytes, counter, arrivals, word});
      return;
    }
    plan_.dependencies.push_back(schedule_.sinks());
    plan_.operations.push_back(
        {"complete", own_dispatch(context_.own_kernels().complete, Dim3{}, {counter, word}), {}, OwnRole::completion});
  }

  void place() {
    std::vector<std::uint64_t> device(plan_.allocations.size(), 0);
    std::vector<std::uint64_t> pinned(plan_.allocations.size(), 0);
    for (std::size_t i = 0; i < plan_.allocations.size(); ++i) {
      const Allocation& allocation = plan_.allocations[i];
      if (allocation.weight == nullptr)
        (allocation.placement == Placement::device ? device : pinned)[i] = allocation.bytes;
    }
    plan_.device = plan_arena(device);
    plan_.pinned = plan_arena(pinned);
  }

  [[nodiscard]] AllocationKind kind_of(std::uint32_t allocation) const {
    const auto is_of = [&](const std::vector<DeviceTensor>& tensors) {
      return std::ranges::any_of(tensors, [&](const DeviceTensor& tensor) {
        return DeviceTensorAccess::location(tensor).allocation == allocation;
      });
    };
    if (plan_.allocations[allocation].weight != nullptr) return AllocationKind::weight;
    if (is_of(inference_.inputs)) return AllocationKind::input;
    if (is_of(inference_.outputs)) return AllocationKind::output;
    return allocation < graph_.allocations.size() ? AllocationKind::scratch : AllocationKind::own;
  }

  void describe() {
    Topology& topology = plan_.topology;
    topology.title = graph_.label;
    topology.order = options_.order;
    topology.slots = options_.slots;
    topology.requested_bytes = plan_.requested_bytes;
    topology.reserved_bytes = plan_.device.reserved;
    topology.redundant_edges = schedule_.redundant_edges;
    for (std::uint32_t i = 0; i < plan_.allocations.size(); ++i) {
      const Allocation& allocation = plan_.allocations[i];
      TopologyAllocation described{kind_of(i), allocation.label, allocation.bytes, {}};
      if (allocation.weight == nullptr && allocation.placement == Placement::device)
        described.offset = plan_.device.offsets[i];
      topology.allocations.push_back(std::move(described));
    }
    std::ranges::transform(plan_.operations, std::back_inserter(topology.nodes), describe_node);
    for (const ScheduleEdge& edge : schedule_.edges) {
      const auto reasons = schedule_.reasons_of(edge);
      topology.edges.push_back({edge.from, edge.to, {reasons.begin(), reasons.end()}});
    }
    if (plan_.operations.back().role == OwnRole::completion) {
      const auto completion = static_cast<std::uint32_t>(plan_.operations.size() - 1);
      for (const std::uint32_t sink : plan_.dependencies.back()) topology.edges.push_back({sink, completion, {}});
    }
  }

  [[nodiscard]] static TopologyNode describe_node(const Operation& operation) {
    TopologyNode node{
        operation.role ? NodeKind::own : NodeKind::dispatch, operation.role, operation.label, {}, operation.uses.uses};
    if (const auto* fill = std::get_if<FillOperation>(&operation.action)) {
      node.kind = NodeKind::fill;
      node.detail = FillDetail{fill->bytes, fill->value};
    } else if (const auto* copy = std::get_if<CopyOperation>(&operation.action)) {
      node.detail = CopyDetail{copy->bytes};
    } else {
      const auto& dispatch = std::get<DispatchOperation>(operation.action);
      const Dim3& block = dispatch.kernel->spec.block;
      node.detail = KernelDetail{dispatch.kernel->spec.symbol,
                                 {dispatch.grid.x, dispatch.grid.y, dispatch.grid.z},
                                 {block.x, block.y, block.z},
                                 dispatch.dynamic_shared_bytes};
    }
    return node;
  }

  const ContextState& context_;
  const InferenceGraph& inference_;
  const GraphState& graph_;
  const PrepareOptions& options_;
  SlotPlan plan_;
  Schedule schedule_;
  std::uint32_t control_ = 0;
};

}  // namespace

SlotPlan plan_slot(const ContextState& context, const InferenceGraph& inference, const PrepareOptions& options) {
  return SlotPlanner(context, inference, options).plan();
}

}  // namespace weft
