#include "slot_plan.h"

#include "device/copy_entry.h"
#include "device/own_kernels.h"
#include "device_tensor_access.h"
#include "error_context.h"
#include "graph_state.h"
#include "overlap.h"
#include "own_dispatch.h"
#include "plan/access_summary.h"
#include "refusal.h"
#include <weft/error.h>
#include <weft/plan/schedule.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <variant>

namespace weft {

namespace {

// The control block: what weft_complete and weft_copy_complete count in, each on a line of its own.
constexpr std::uint64_t kCounterOffset = 0;
constexpr std::uint64_t kArrivalsOffset = 128;
constexpr std::uint64_t kControlBytes = 256;

ByteUse use_of(const Location& place, std::uint64_t bytes, Access access) {
  return {place.allocation, place.offset, place.offset + bytes, access};
}

bool overlap(const SlotTensor& a, const SlotTensor& b) {
  return a.place.allocation == b.place.allocation &&
         weft::overlap(a.place.offset, a.desc.bytes(), b.place.offset, b.desc.bytes());
}

void require_forms(const std::vector<RequestForm>& forms) {
  if (forms.empty()) refuse("A prepared model has at least 1 request form; none is listed.");
  for (std::size_t i = 0; i < forms.size(); ++i) {
    require_enumerator(fmt::format("side of the inputs of request form {}", i), forms[i].inputs, Side::device);
    require_enumerator(fmt::format("side of the outputs of request form {}", i), forms[i].outputs, Side::device);
    const auto first = std::ranges::find(forms, forms[i]) - forms.begin();
    if (static_cast<std::size_t>(first) != i)
      refuse(fmt::format("The request forms {} and {} are the same.", first, i));
  }
}

TopologyNode describe_node(const Operation& operation) {
  TopologyNode node{
      operation.role ? NodeKind::own : NodeKind::dispatch, operation.role, operation.label, {}, operation.uses.uses};
  if (const auto* fill = std::get_if<FillOperation>(&operation.action)) {
    node.kind = NodeKind::fill;
    node.detail = FillDetail{fill->bytes, fill->value};
  } else if (const auto* copy = std::get_if<CopyOperation>(&operation.action)) {
    node.detail = CopyDetail{copy->bytes};
  } else if (const auto* captured = std::get_if<CapturedOperation>(&operation.action)) {
    node.kind = NodeKind::captured;
    node.detail = CapturedDetail{captured->call->name, captured->call->workspace_bytes};
  } else {
    const auto& dispatch = std::get<DispatchOperation>(operation.action);
    const Dim3& block = dispatch.kernel->spec.block;
    const Dim3& cluster = dispatch.kernel->spec.cluster;
    node.detail = KernelDetail{dispatch.kernel->spec.symbol,      {dispatch.grid.x, dispatch.grid.y, dispatch.grid.z},
                               {block.x, block.y, block.z},       dispatch.dynamic_shared_bytes,
                               {cluster.x, cluster.y, cluster.z}, dispatch.kernel->spec.cooperative};
    auto& detail = std::get<KernelDetail>(node.detail);
    for (const LateScalarSlot& late : dispatch.late) detail.late.push_back({late.parameter, late.scalar->label});
  }
  return node;
}

/// What all forms of a slot share: its allocations, and where its tensors are.
class SlotPlanner {
 public:
  SlotPlanner(const ContextState& context, const InferenceGraph& inference, const PrepareOptions& options)
      : context_(context), inference_(inference), graph_(GraphAccess::state(inference.graph)), options_(options) {}

  SlotPlan plan() {
    if (ContextAccess::state(graph_.context).get() != &context_) refuse("The graph belongs to another context.");
    if (graph_.operations.empty()) refuse(fmt::format("The graph \"{}\" has no commands.", graph_.label));
    require_forms(options_.forms);
    plan_.allocations = graph_.allocations;
    locate("inputs", inference_.inputs, plan_.inputs);
    locate("outputs", inference_.outputs, plan_.outputs);
    count_requested();
    collect_uses();
    collect_run_owners();
    plan_.control = add_allocation("control", kControlBytes, Placement::device);
    plan_.word = add_allocation("completion word", kWordBytes, Placement::shared);
    if (serves(&RequestForm::inputs, Side::host)) add_staging(plan_.inputs);
    if (serves(&RequestForm::outputs, Side::host)) add_staging(plan_.outputs);
    if (serves(&RequestForm::inputs, Side::device)) plan_.input_table = add_table("input table", plan_.inputs);
    if (serves(&RequestForm::outputs, Side::device)) plan_.output_table = add_table("output table", plan_.outputs);
    place();
    plan_.late = plan_late(plan_.allocations, graph_.operations);
    for (const RequestForm& form : options_.forms) {
      add_form(form);
      add_late_form(plan_.late, plan_.forms.back().graph.operations);
    }
    return std::move(plan_);
  }

 private:
  [[nodiscard]] bool serves(Side RequestForm::*what, Side side) const {
    return std::ranges::any_of(options_.forms, [&](const RequestForm& form) { return form.*what == side; });
  }

  std::uint32_t add_allocation(std::string label, std::uint64_t bytes, Placement placement) {
    plan_.allocations.push_back({.label = std::move(label), .bytes = bytes, .placement = placement});
    return static_cast<std::uint32_t>(plan_.allocations.size() - 1);
  }

  [[nodiscard]] Location place_of(const DeviceTensor& tensor) {
    if (tensor.desc().is_empty()) refuse(fmt::format("The tensor is empty: {}.", to_string(tensor.desc())));
    if (DeviceTensorAccess::is_in_graph(tensor)) {
      if (DeviceTensorAccess::graph(tensor) != graph_.id) refuse("The tensor belongs to another graph.");
      return {DeviceTensorAccess::allocation(tensor), DeviceTensorAccess::offset(tensor)};
    }
    const std::shared_ptr<TrackedMemory>& memory = DeviceTensorAccess::memory(tensor);
    if (&memory->home() != &context_) refuse("The tensor belongs to another context.");
    static_cast<void>(tensor.wait(Deadline::max()));
    const std::uint32_t allocation = find_or_add_memory(plan_.allocations, memory);
    return {allocation, DeviceTensorAccess::offset(tensor)};
  }

  void locate(const char* what, const std::vector<DeviceTensor>& tensors, std::vector<SlotTensor>& located) {
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      in_context([&] { return fmt::format("placing {}[{}]", what, i); },
                 [&] {
                   const Location place = place_of(tensors[i]);
                   located.push_back({tensors[i].desc(), place, place});
                 });
    }
  }

  void count_requested() {
    for (const Allocation& allocation : graph_.allocations) {
      if (!allocation.is_private()) continue;
      plan_.requested_bytes += allocation.bytes;
      ++plan_.requested_allocations;
    }
  }

  // Merged, so that a submission looks at each stretch of bytes once.
  void collect_uses() {
    CommandUses outside;
    const auto collect = [&](const ByteUse& use) {
      if (plan_.allocations[use.allocation].memory != nullptr) outside.uses.push_back(use);
    };
    for (const Operation& operation : graph_.operations) std::ranges::for_each(operation.uses.uses, collect);
    for (const SlotTensor& input : plan_.inputs) collect(use_of(input.place, input.desc.bytes(), Access::write));
    for (const SlotTensor& output : plan_.outputs) collect(use_of(output.place, output.desc.bytes(), Access::read));
    const AccessSummary summary(std::span(&outside, 1));
    const auto add = [&](std::span<const ByteRange> ranges, Access access) {
      for (const ByteRange& range : ranges)
        plan_.uses.push_back({plan_.allocations[range.allocation].memory.get(), range.begin, range.end, access});
    };
    add(summary.writes(0), Access::write);
    add(summary.reads(0), Access::read);
  }

  void collect_run_owners() {
    std::vector<std::shared_ptr<const void>> owners;
    for (const Allocation& allocation : graph_.allocations) {
      if (allocation.weight != nullptr) owners.push_back(allocation.weight);
    }
    for (const Operation& operation : graph_.operations) {
      const auto* dispatch = std::get_if<DispatchOperation>(&operation.action);
      if (dispatch != nullptr) owners.push_back(dispatch->kernel);
      const auto* captured = std::get_if<CapturedOperation>(&operation.action);
      if (captured != nullptr) owners.push_back(captured->call);
    }
    std::ranges::sort(owners);
    const auto repeated = std::ranges::unique(owners);
    owners.erase(repeated.begin(), repeated.end());
    plan_.run_owners = std::make_shared<const std::vector<std::shared_ptr<const void>>>(std::move(owners));
  }

  // Memory of the slot that the host sees is written and read in place. What is outside the slot has guards of its own.
  void add_staging(std::vector<SlotTensor>& tensors) {
    for (SlotTensor& tensor : tensors) {
      const Allocation& allocation = plan_.allocations[tensor.place.allocation];
      if (allocation.is_private() && allocation.placement == Placement::shared) continue;
      tensor.host = {add_allocation(allocation.label + " staging", tensor.desc.bytes(), Placement::shared), 0};
    }
  }

  std::uint32_t add_table(const char* label, const std::vector<SlotTensor>& tensors) {
    return tensors.empty() ? 0 : add_allocation(label, tensors.size() * sizeof(own::CopyEntry), Placement::shared);
  }

  void place() {
    std::vector<std::uint64_t> device(plan_.allocations.size(), 0);
    std::vector<std::uint64_t> pinned(plan_.allocations.size(), 0);
    for (std::size_t i = 0; i < plan_.allocations.size(); ++i) {
      const Allocation& allocation = plan_.allocations[i];
      if (!allocation.is_private() || i == plan_.word) continue;
      (allocation.placement == Placement::device ? device : pinned)[i] = allocation.bytes;
    }
    plan_.device = plan_arena(device);
    plan_.pinned = plan_arena(pinned);
  }

  void add_form(const RequestForm& form);

  const ContextState& context_;
  const InferenceGraph& inference_;
  const GraphState& graph_;
  const PrepareOptions& options_;
  SlotPlan plan_;
};

/// What one form adds to the graph's commands, and how all of it is ordered.
class FormPlanner {
 public:
  FormPlanner(const ContextState& context, const GraphState& graph, const PrepareOptions& options, const SlotPlan& slot,
              RequestForm form)
      : context_(context), graph_(graph), options_(options), slot_(slot), plan_{form, {}, {}} {}

  FormPlan plan() {
    plan_.graph.title = graph_.label;
    plan_.graph.programmatic = options_.programmatic;
    if (plan_.form.inputs == Side::host) {
      for (const SlotTensor& input : slot_.inputs) add_copy(OwnRole::copy_in, input, input.place, input.host);
    } else {
      add_table_copies();
    }
    add_commands();
    if (plan_.form.outputs == Side::host) {
      for (const SlotTensor& output : slot_.outputs) add_copy(OwnRole::copy_out, output, output.host, output.place);
    } else if (!slot_.outputs.empty()) {
      add_output_table();
    }
    order();
    describe();
    return std::move(plan_);
  }

 private:
  [[nodiscard]] std::vector<Operation>& operations() noexcept { return plan_.graph.operations; }
  [[nodiscard]] const OwnKernels& own_kernels() const noexcept { return context_.own_kernels(); }

  [[nodiscard]] bool by_kernel(std::uint64_t bytes) const {
    return options_.copies == CopyMethod::kernel ||
           (options_.copies == CopyMethod::automatic && bytes <= kCopyKernelBytes);
  }

  void add_copy(OwnRole role, const SlotTensor& tensor, const Location& destination, const Location& source) {
    if (destination == source) return;
    const std::uint64_t bytes = tensor.desc.bytes();
    Operation operation{
        (role == OwnRole::copy_in ? "copy in " : "copy out ") + slot_.allocations[tensor.place.allocation].label,
        CopyOperation{destination, source, bytes},
        {},
        role};
    operation.uses.uses = copy_uses(destination, source, bytes);
    if (by_kernel(bytes))
      operation.action = own_dispatch(own_kernels().copy, own::copy_grid(bytes), {destination, source, bytes});
    operations().push_back(std::move(operation));
    copied_bytes_ = bytes;
  }

  /// One kernel for tensors [first, last): it reads their entries of a table.
  [[nodiscard]] Operation table_copy(std::string label, OwnRole role, std::uint32_t table, std::size_t first,
                                     std::span<const SlotTensor> tensors, Access access) {
    std::uint64_t largest = 0;
    const Location entries{table, first * sizeof(own::CopyEntry)};
    Operation operation{std::move(label), CopyOperation{}, {}, role};
    operation.uses.uses = {use_of(entries, tensors.size() * sizeof(own::CopyEntry), Access::read)};
    for (const SlotTensor& tensor : tensors) {
      largest = std::max(largest, tensor.desc.bytes());
      operation.uses.uses.push_back(use_of(tensor.place, tensor.desc.bytes(), access));
    }
    const auto count = static_cast<std::uint32_t>(tensors.size());
    operation.action =
        own_dispatch(own_kernels().copy_table, own::copy_table_grid(largest, count), {entries, std::uint64_t{count}});
    return operation;
  }

  // Inputs that overlap come one after the other, so that the last of them holds, as with host inputs.
  void add_table_copies() {
    const std::span<const SlotTensor> inputs(slot_.inputs);
    for (std::size_t first = 0; first < inputs.size();) {
      std::size_t last = first + 1;
      const auto is_apart = [&](const SlotTensor& next) {
        return std::ranges::none_of(inputs.subspan(first, last - first),
                                    [&](const SlotTensor& earlier) { return overlap(earlier, next); });
      };
      while (last < inputs.size() && is_apart(inputs[last])) ++last;
      operations().push_back(table_copy("copy in", OwnRole::copy_in, slot_.input_table, first,
                                        inputs.subspan(first, last - first), Access::write));
      first = last;
    }
  }

  // What a request binds may be memory of any kind, and a memset node of an executable cannot change over to another.
  [[nodiscard]] bool needs_kernel(const FillOperation& fill) const {
    return slot_.allocations[fill.destination.allocation].late != nullptr ||
           !context_.api().limits().fill_nodes_on_pool_memory;
  }

  void add_commands() {
    const auto first = static_cast<std::uint32_t>(operations().size());
    for (Operation operation : graph_.operations) {
      for (std::uint32_t& earlier : operation.uses.after) earlier += first;
      const auto* fill = std::get_if<FillOperation>(&operation.action);
      if (fill != nullptr && needs_kernel(*fill)) {
        fill_by_kernel(operation, own_kernels().fill);
      }
      operations().push_back(std::move(operation));
    }
  }

  // It may write over the caller's inputs, so it follows their copies.
  void add_output_table() {
    std::vector<std::uint32_t> copies_in;
    for (std::uint32_t i = 0; i < operations().size() && operations()[i].role == OwnRole::copy_in; ++i)
      copies_in.push_back(i);
    operations().push_back(
        table_copy("copy out", OwnRole::copy_out, slot_.output_table, 0, slot_.outputs, Access::read));
    operations().back().uses.after = std::move(copies_in);
  }

  void order() {
    std::vector<CommandUses> uses;
    uses.reserve(operations().size());
    std::ranges::transform(operations(), std::back_inserter(uses), &Operation::uses);
    schedule_ = schedule(uses, options_.order);
    plan_.graph.dependencies.resize(operations().size());
    for (const ScheduleEdge& edge : schedule_.edges) plan_.graph.dependencies[edge.to].push_back(edge.from);
    add_completion();
  }

  // The completion waits for everything. A copy-out kernel that everything else comes before can carry it; otherwise it
  // is a node of its own behind every sink.
  void add_completion() {
    const Location counter{slot_.control, kCounterOffset};
    const Location word{slot_.word, 0};
    Operation& last = operations().back();
    auto* dispatch = std::get_if<DispatchOperation>(&last.action);
    if (last.role == OwnRole::copy_out && dispatch != nullptr &&
        schedule_.is_only_sink(static_cast<std::uint32_t>(operations().size() - 1))) {
      last.label += " and complete";
      *dispatch = completing(*dispatch, counter, {slot_.control, kArrivalsOffset}, word);
      return;
    }
    plan_.graph.dependencies.push_back(schedule_.sinks());
    operations().push_back(
        {"complete", own_dispatch(own_kernels().complete, Dim3{}, {counter, word}), {}, OwnRole::completion});
  }

  /// The same copy by the kernel that completes too.
  [[nodiscard]] DispatchOperation completing(const DispatchOperation& copy, Location counter, Location arrivals,
                                             Location word) const {
    const Location first = copy.pointers[0].target;
    if (copy.kernel == own_kernels().copy_table) {
      return own_dispatch(own_kernels().copy_table_complete, copy.grid,
                          {first, std::uint64_t{slot_.outputs.size()}, counter, arrivals, word});
    }
    return own_dispatch(own_kernels().copy_complete, copy.grid,
                        {first, copy.pointers[1].target, copied_bytes_, counter, arrivals, word});
  }

  [[nodiscard]] AllocationKind kind_of(std::uint32_t index) const {
    const auto is_of = [&](const std::vector<SlotTensor>& tensors) {
      return std::ranges::any_of(tensors, [&](const SlotTensor& tensor) { return tensor.place.allocation == index; });
    };
    const Allocation& allocation = slot_.allocations[index];
    if (allocation.weight != nullptr) return AllocationKind::weight;
    if (allocation.late != nullptr) return AllocationKind::late;
    if (is_of(slot_.inputs)) return AllocationKind::input;
    if (is_of(slot_.outputs)) return AllocationKind::output;
    if (allocation.memory != nullptr)
      return allocation.memory->is_state() ? AllocationKind::state : AllocationKind::external;
    if (allocation.users > 1) return AllocationKind::reused;
    return index < graph_.allocations.size() ? AllocationKind::scratch : AllocationKind::own;
  }

  void describe() {
    Topology& topology = plan_.topology;
    topology.title = graph_.label;
    topology.order = options_.order;
    topology.slots = options_.slots;
    topology.requested_bytes = slot_.requested_bytes;
    topology.reserved_bytes = slot_.device.reserved;
    topology.redundant_edges = schedule_.redundant_edges;
    for (std::uint32_t i = 0; i < slot_.allocations.size(); ++i) {
      const Allocation& allocation = slot_.allocations[i];
      TopologyAllocation described{kind_of(i), allocation.label, allocation.bytes, {}};
      if (allocation.is_private() && allocation.placement == Placement::device)
        described.offset = slot_.device.offsets[i];
      topology.allocations.push_back(std::move(described));
    }
    std::ranges::transform(operations(), std::back_inserter(topology.nodes), describe_node);
    for (const ScheduleEdge& edge : schedule_.edges) {
      const auto reasons = schedule_.reasons_of(edge);
      topology.edges.push_back(
          {edge.from, edge.to, {reasons.begin(), reasons.end()}, plan_.graph.is_programmatic(edge.from, edge.to)});
    }
    if (operations().back().role == OwnRole::completion) {
      const auto completion = static_cast<std::uint32_t>(operations().size() - 1);
      for (const std::uint32_t sink : plan_.graph.dependencies.back())
        topology.edges.push_back({sink, completion, {}, plan_.graph.is_programmatic(sink, completion)});
    }
  }

  const ContextState& context_;
  const GraphState& graph_;
  const PrepareOptions& options_;
  const SlotPlan& slot_;
  FormPlan plan_;
  Schedule schedule_;
  std::uint64_t copied_bytes_ = 0;  // Of the last copy.
};

void SlotPlanner::add_form(const RequestForm& form) {
  plan_.forms.push_back(FormPlanner(context_, graph_, options_, plan_, form).plan());
}

bool has_side(const SlotPlan& plan, Side RequestForm::*what, Side side) {
  return std::ranges::any_of(plan.forms, [&](const FormPlan& form) { return form.form.*what == side; });
}

}  // namespace

bool SlotPlan::is_host_written(std::uint32_t allocation) const noexcept {
  return std::ranges::any_of(inputs, [&](const SlotTensor& input) {
    return input.host == input.place && input.place.allocation == allocation && is_host_visible(input);
  });
}

bool SlotPlan::has_host_written_outputs() const noexcept {
  return std::ranges::any_of(outputs,
                             [&](const SlotTensor& output) { return is_host_written(output.place.allocation); });
}

bool SlotPlan::has_device_inputs() const noexcept { return has_side(*this, &RequestForm::inputs, Side::device); }
bool SlotPlan::has_device_outputs() const noexcept { return has_side(*this, &RequestForm::outputs, Side::device); }

SlotPlan plan_slot(const ContextState& context, const InferenceGraph& inference, const PrepareOptions& options) {
  return SlotPlanner(context, inference, options).plan();
}

bool same_shape(const SlotPlan& a, const SlotPlan& b) {
  return std::ranges::equal(a.forms, b.forms,
                            [](const FormPlan& x, const FormPlan& y) { return x.topology == y.topology; });
}

}  // namespace weft
