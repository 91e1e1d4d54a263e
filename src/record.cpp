// Recording: a fragment's operations become a graph's, with the fragment's allocations resolved to the graph's storage.

#include "record.h"

#include "context_state.h"
#include "device_tensor_access.h"
#include "error_context.h"
#include "fragment_state.h"
#include "graph_state.h"
#include "overlap.h"
#include "refusal.h"
#include <weft/error.h>
#include <weft/graph.h>
#include <weft/model.h>
#include <weft/plan/arena.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

namespace weft {

namespace {

/// Where a fragment's allocation went: its bytes [base, base + bytes) are those of `storage` onwards.
struct Bound {
  Location storage;
  std::uint64_t base = 0;
  std::uint64_t bytes = 0;
};

bool same_storage(const Bound& a, const Bound& b) {
  return a.storage.allocation == b.storage.allocation && a.storage.offset == b.storage.offset && a.bytes == b.bytes &&
         a.base == b.base;
}

class Recording {
 public:
  Recording(const FragmentState& fragment, GraphState& graph)
      : fragment_(fragment), graph_(graph), bound_(fragment.allocations.size()) {
    for (std::size_t i = 0; i < graph.allocations.size(); ++i) {
      if (graph.allocations[i].weight != nullptr)
        weights_.emplace(graph.allocations[i].weight.get(), static_cast<std::uint32_t>(i));
    }
  }

  RecordedTensors record(const std::vector<DeviceTensor>* supplied) {
    if (!(graph_.context == fragment_.context)) refuse("The graph belongs to another context than the fragment.");
    if (supplied != nullptr) bind_inputs(*supplied);
    bind_storage();
    RecordedTensors tensors{tensors_of("inputs", fragment_.inputs), tensors_of("outputs", fragment_.outputs)};
    std::vector<Operation> operations = resolved_operations();

    // Nothing is refused from here on.
    graph_.allocations.reserve(graph_.allocations.size() + added_.size());
    graph_.operations.reserve(graph_.operations.size() + operations.size());
    graph_.scratch_pool.reserve(graph_.scratch_pool.size() + added_scratch_.size());
    for (const std::uint32_t shared : taken_scratch_) ++graph_.allocations[shared].users;
    std::ranges::copy(added_scratch_, std::back_inserter(graph_.scratch_pool));
    std::ranges::move(added_, std::back_inserter(graph_.allocations));
    std::ranges::move(operations, std::back_inserter(graph_.operations));
    return tensors;
  }

 private:
  void bind_inputs(const std::vector<DeviceTensor>& supplied) {
    if (supplied.size() != fragment_.inputs.size()) {
      refuse(
          fmt::format("{} tensors are given; the fragment has {} inputs.", supplied.size(), fragment_.inputs.size()));
    }
    for (std::size_t i = 0; i < supplied.size(); ++i) {
      in_context([&] { return fmt::format("binding inputs[{}]", i); },
                 [&] { bind_input(fragment_.inputs[i], supplied[i]); });
    }
  }

  void bind_input(const TensorRegion& input, const DeviceTensor& tensor) {
    const bool is_in_memory = !DeviceTensorAccess::is_in_graph(tensor);
    if (is_in_memory) {
      require_context(tensor);
    } else if (DeviceTensorAccess::graph(tensor) != graph_.id) {
      refuse("The tensor belongs to another graph.");
    }
    if (!(tensor.desc() == input.desc)) {
      refuse(fmt::format("The tensor is {}; the fragment's input is {}.", to_string(tensor.desc()),
                         to_string(input.desc)));
    }
    static_cast<void>(tensor.wait(Deadline::max()));
    const std::uint32_t storage =
        is_in_memory ? memory_storage(DeviceTensorAccess::memory(tensor)) : DeviceTensorAccess::allocation(tensor);
    const Bound candidate{{storage, DeviceTensorAccess::offset(tensor)}, input.offset, tensor.desc().bytes()};
    for (std::size_t other = 0; other < bound_.size(); ++other) {
      if (other != input.allocation && bound_[other] && overlap(*bound_[other], candidate)) {
        refuse(
            fmt::format("The tensor overlaps the one bound to allocation \"{}\"; the fragment's order was inferred for "
                        "distinct memory.",
                        fragment_.allocations[other].label));
      }
    }
    for (const Allocation& allocation : fragment_.allocations) {
      if (allocation.weight != nullptr && overlaps_weight(candidate, *allocation.weight)) {
        refuse(fmt::format("The tensor shares bytes with the weight \"{}\" of the fragment.", allocation.label));
      }
      if (allocation.memory != nullptr && overlaps_memory(candidate, *allocation.memory)) {
        refuse(fmt::format("The tensor shares bytes with the state \"{}\" of the fragment.", allocation.label));
      }
    }
    std::optional<Bound>& bound = bound_[input.allocation];
    if (bound && !same_storage(*bound, candidate)) {
      refuse(fmt::format("Two inputs of allocation \"{}\" are given different tensors.",
                         fragment_.allocations[input.allocation].label));
    }
    bound = candidate;
  }

  static DeviceAddress address_in(const TrackedMemory& memory, const Bound& bound) {
    return memory.address() + bound.storage.offset;
  }

  // A tensor of no memory has no home; only an empty one is that, which no descriptor of an input matches.
  void require_context(const DeviceTensor& tensor) const {
    const std::shared_ptr<TrackedMemory>& memory = DeviceTensorAccess::memory(tensor);
    if (memory != nullptr && &memory->home() != ContextAccess::state(graph_.context).get())
      refuse("The tensor belongs to another context.");
  }

  [[nodiscard]] const Allocation& storage_of(const Bound& bound) const {
    const std::uint32_t index = bound.storage.allocation;
    const auto own = static_cast<std::uint32_t>(graph_.allocations.size());
    return index < own ? graph_.allocations[index] : added_[index - own];
  }

  // Memory outside the graph is compared by address: two allocations of the graph may be wrapped around the same bytes.
  [[nodiscard]] bool overlap(const Bound& a, const Bound& b) const {
    if (a.storage.allocation == b.storage.allocation)
      return weft::overlap(a.storage.offset, a.bytes, b.storage.offset, b.bytes);
    const auto& memory = storage_of(a).memory;
    const auto& other = storage_of(b).memory;
    return memory != nullptr && other != nullptr &&
           weft::overlap(address_in(*memory, a), a.bytes, address_in(*other, b), b.bytes);
  }

  [[nodiscard]] bool overlaps_weight(const Bound& bound, const Weight& weight) const {
    const Allocation& storage = storage_of(bound);
    return storage.weight.get() == &weight ||
           (storage.memory != nullptr &&
            weft::overlap(address_in(*storage.memory, bound), bound.bytes, weight.address(), weight.bytes()));
  }

  [[nodiscard]] bool overlaps_memory(const Bound& bound, const TrackedMemory& memory) const {
    const Allocation& storage = storage_of(bound);
    return storage.memory != nullptr &&
           weft::overlap(address_in(*storage.memory, bound), bound.bytes, memory.address(), memory.bytes());
  }

  /// The graph's allocation for memory of its own kind, which may be one that is yet to be added.
  std::uint32_t memory_storage(const std::shared_ptr<TrackedMemory>& memory) {
    if (const auto found = find_memory(graph_.allocations, memory.get())) return *found;
    return static_cast<std::uint32_t>(graph_.allocations.size()) + find_or_add_memory(added_, memory);
  }

  /// Private scratch, no byte of whose allocation is an input or output.
  [[nodiscard]] bool is_reusable(std::uint32_t index) const {
    const auto stands_in = [&](const TensorRegion& tensor) { return tensor.allocation == index; };
    return fragment_.extents[index] > 0 && fragment_.allocations[index].is_private() &&
           std::ranges::none_of(fragment_.inputs, stands_in) && std::ranges::none_of(fragment_.outputs, stands_in);
  }

  // Requests are served in allocation order by the smallest entry of the same placement that is long enough, the first
  // of equals, each entry once.
  void bind_reused_scratch() {
    for (std::uint32_t i = 0; i < fragment_.allocations.size(); ++i) {
      if (!is_reusable(i)) continue;
      const Allocation& request = fragment_.allocations[i];
      const std::uint64_t bytes = fragment_.extents[i];
      std::optional<std::uint32_t> best;
      for (const std::uint32_t entry : graph_.scratch_pool) {
        const Allocation& candidate = graph_.allocations[entry];
        const bool fits = candidate.placement == request.placement && candidate.bytes >= bytes &&
                          std::ranges::find(taken_scratch_, entry) == taken_scratch_.end();
        if (fits && (!best || candidate.bytes < graph_.allocations[*best].bytes)) best = entry;
      }
      if (best) {
        taken_scratch_.push_back(*best);
      } else {
        best = add({.label = request.label, .bytes = bytes, .placement = request.placement});
        added_scratch_.push_back(*best);
      }
      bound_[i] = Bound{{*best, 0}, 0, bytes};
    }
  }

  void bind_storage() {
    if (fragment_.reuses_scratch) bind_reused_scratch();
    for (std::size_t i = 0; i < fragment_.allocations.size(); ++i) {
      if (bound_[i] || fragment_.extents[i] == 0) continue;
      const Allocation& allocation = fragment_.allocations[i];
      if (allocation.weight != nullptr) {
        bound_[i] = Bound{{weight_storage(allocation), 0}, 0, allocation.bytes};
      } else if (allocation.memory != nullptr) {
        bound_[i] = Bound{{memory_storage(allocation.memory), 0}, 0, allocation.bytes};
      } else if (allocation.late != nullptr) {
        bound_[i] = Bound{{late_storage(allocation), 0}, 0, allocation.bytes};
      } else {
        bound_[i] = Bound{
            {add({.label = allocation.label, .bytes = fragment_.extents[i], .placement = allocation.placement}), 0},
            0,
            fragment_.extents[i]};
      }
    }
  }

  // A weight is one allocation of the graph, however many fragments read it.
  std::uint32_t weight_storage(const Allocation& weight) {
    const auto found = weights_.find(weight.weight.get());
    if (found != weights_.end()) return found->second;
    const std::uint32_t storage = add(weight);
    weights_.emplace(weight.weight.get(), storage);
    return storage;
  }

  // The same of memory that requests bring: one binding reaches all fragments.
  std::uint32_t late_storage(const Allocation& region) {
    const auto is_same = [&](const Allocation& other) { return other.late == region.late; };
    const auto found = std::ranges::find_if(graph_.allocations, is_same);
    if (found != graph_.allocations.end()) return static_cast<std::uint32_t>(found - graph_.allocations.begin());
    return add(region);
  }

  std::uint32_t add(Allocation allocation) {
    added_.push_back(std::move(allocation));
    return static_cast<std::uint32_t>(graph_.allocations.size() + added_.size() - 1);
  }

  [[nodiscard]] Location resolve(std::uint32_t allocation, std::uint64_t offset, std::uint64_t bytes) const {
    const Bound& bound = bound_[allocation].value();
    const std::string& label = fragment_.allocations[allocation].label;
    if (offset < bound.base) {
      refuse(fmt::format("The access at byte {} of allocation \"{}\" precedes the input bound at byte {}.", offset,
                         label, bound.base));
    }
    if (offset - bound.base > bound.bytes || bytes > bound.bytes - (offset - bound.base)) {
      refuse(fmt::format("The access to {} bytes at byte {} of allocation \"{}\" passes the {} bytes bound at byte {}.",
                         bytes, offset, label, bound.bytes, bound.base));
    }
    return {bound.storage.allocation, bound.storage.offset + (offset - bound.base)};
  }

  [[nodiscard]] std::vector<DeviceTensor> tensors_of(const char* what, const std::vector<TensorRegion>& regions) const {
    std::vector<DeviceTensor> tensors;
    for (std::size_t i = 0; i < regions.size(); ++i) {
      const TensorRegion& region = regions[i];
      const Location location =
          in_context([&] { return fmt::format("resolving {}[{}]", what, i); },
                     [&] { return resolve(region.allocation, region.offset, region.desc.bytes()); });
      tensors.push_back(DeviceTensorAccess::in_graph(region.desc, graph_.id, location.allocation, location.offset));
    }
    return tensors;
  }

  [[nodiscard]] std::vector<Operation> resolved_operations() const {
    const auto first = static_cast<std::uint32_t>(graph_.operations.size());
    std::vector<Operation> operations = fragment_.operations;
    for (std::size_t i = 0; i < operations.size(); ++i) {
      in_context([&] { return fmt::format("resolving commands[{}]", i); },
                 [&] { resolve_operation(operations[i], first); });
    }
    return operations;
  }

  void resolve_operation(Operation& operation, std::uint32_t first) const {
    for (ByteUse& use : operation.uses.uses) {
      const Location location = resolve(use.allocation, use.begin, use.end - use.begin);
      use = {location.allocation, location.offset, location.offset + (use.end - use.begin), use.access};
    }
    for (std::uint32_t& earlier : operation.uses.after) earlier += first;
    if (auto* fill = std::get_if<FillOperation>(&operation.action)) {
      fill->destination = resolve(fill->destination.allocation, fill->destination.offset, fill->bytes);
    }
    if (auto* captured = std::get_if<CapturedOperation>(&operation.action)) resolve_places(*captured);
    if (auto* dispatch = std::get_if<DispatchOperation>(&operation.action)) {
      for (PointerSlot& pointer : dispatch->pointers) {
        require_aligned(*dispatch, pointer);
        pointer.target = resolve(pointer.target.allocation, pointer.target.offset, 0);
      }
    }
  }

  // The start of a binding, wherever it ends: its uses were resolved to the same allocation.
  void resolve_places(CapturedOperation& captured) const {
    for (Location& place : captured.bindings) place = resolve(place.allocation, place.offset, 0);
    if (captured.workspace) captured.workspace = resolve(captured.workspace->allocation, captured.workspace->offset, 0);
  }

  // An input may bring another alignment than the region that it replaces.
  void require_aligned(const DispatchOperation& dispatch, const PointerSlot& pointer) const {
    const Bound& bound = bound_[pointer.target.allocation].value();
    const Location target = resolve(pointer.target.allocation, pointer.target.offset, 0);
    const auto& memory = storage_of(bound).memory;
    const std::uint64_t start = target.offset + (memory != nullptr ? memory->address() % kArenaAlignment : 0);
    const KernelSpec& spec = dispatch.kernel->spec;
    const auto i = parameter_at(*dispatch.kernel, pointer.block_offset);
    if (!i) return;
    const Parameter& parameter = spec.parameters[*i];
    if (start % parameter.required_alignment() == 0) return;
    refuse(
        fmt::format("{} {} (\"{}\") of \"{}\" comes to stand at byte {} of its storage; the kernel needs a "
                    "multiple of {}.",
                    parameter.kind == ParameterKind::binding ? "Argument" : "A pointer in argument", *i, parameter.name,
                    spec.name(), target.offset, parameter.required_alignment()));
  }

  const FragmentState& fragment_;
  GraphState& graph_;
  std::vector<std::optional<Bound>> bound_;                   // By allocation of the fragment.
  std::vector<Allocation> added_;                             // To follow the graph's allocations.
  std::vector<std::uint32_t> taken_scratch_;                  // Entries of the graph's pool that this fragment uses.
  std::vector<std::uint32_t> added_scratch_;                  // Entries of the pool that are added.
  std::unordered_map<const Weight*, std::uint32_t> weights_;  // By storage, those of `added_` too.
};

}  // namespace

RecordedTensors record_fragment(const FragmentState& fragment, GraphState& graph,
                                const std::vector<DeviceTensor>* inputs) {
  return in_context(
      [&] {
        return fragment.label.empty() ? std::string("recording a fragment")
                                      : fmt::format("recording fragment \"{}\"", fragment.label);
      },
      [&] { return Recording(fragment, graph).record(inputs); });
}

std::vector<DeviceTensor> ModelFragment::record(Graph& graph, const std::vector<DeviceTensor>& inputs) const {
  return record_fragment(*state_, GraphAccess::state(graph), &inputs).outputs;
}

}  // namespace weft
