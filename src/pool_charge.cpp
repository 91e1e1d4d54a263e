#include "pool_charge.h"

#include "checked_math.h"
#include "error_context.h"
#include "refusal.h"

#include <spdlog/fmt/fmt.h>

#include <cstdlib>
#include <initializer_list>
#include <optional>
#include <string_view>
#include <utility>

namespace weft {

namespace {

void add(std::uint64_t& total, std::uint64_t bytes, const char* what) {
  const auto sum = checked_add(total, bytes);
  if (!sum) refuse(fmt::format("The {} of all slots is beyond 2^64 bytes.", what));
  total = *sum;
}

std::uint64_t device_bytes(const SlotPlan& plan, bool is_separate) {
  if (!is_separate) return plan.device.reserved;
  std::uint64_t total = 0;
  for (const Allocation& allocation : plan.allocations) {
    if (!allocation.is_private() || allocation.placement != Placement::device) continue;
    add(total, kCanaryBytes, "memory");
    add(total, allocation.bytes, "memory");
  }
  return total;
}

}  // namespace

bool separates_allocations(const PrepareOptions& options) {
  // So that a program can be run under a memory checker as it is.
  const char* value = std::getenv("WEFT_SEPARATE_ALLOCATIONS");
  return options.separate_allocations || (value != nullptr && std::string_view(value) == "1");
}

PoolNeed need_of(const PrepareOptions& options, SlotPlans plans) {
  const bool is_separate = separates_allocations(options);
  PoolNeed need;
  for (const std::shared_ptr<const SlotPlan>& plan : plans) {
    add(need.words, kWordBytes, "completion words");
    add(need.staging, plan->pinned.reserved, "staging");
    add(need.device, device_bytes(*plan, is_separate), "memory");
    for (const FormPlan& form : plan->forms) {
      ++need.graphs.executables;
      need.graphs.nodes += form.graph.operations.size();
    }
  }
  return need;
}

std::uint64_t total_bytes(ContextState& context, const PoolNeed& need) {
  std::uint64_t total = estimate_graphs(*context.domain(), *context.own_kernels().complete, need.graphs);
  for (const std::uint64_t part : {need.words, need.staging, need.device}) add(total, part, "memory");
  return total;
}

PoolCharge::PoolCharge(ContextState& context, const PoolNeed& need, std::string_view title) {
  if (!context.domain()->budget()) {
    graphs_ = std::make_shared<GraphMemory>(context.domain(), need.graphs,
                                            estimate_graphs(*context.domain(), need.graphs), MemoryReservation());
    return;
  }
  const std::uint64_t total = total_bytes(context, need);
  charge_ = in_context([&] { return fmt::format("charging {} bytes for the slots of graph \"{}\"", total, title); },
                       [&] { return context.domain()->charge(total); });
  const std::uint64_t graphs = total - (need.words + need.staging + need.device);
  graphs_ = std::make_shared<GraphMemory>(context.domain(), need.graphs, graphs, charge_.split(graphs));
}

std::shared_ptr<const void> PoolCharge::keep(std::shared_ptr<const void> memory) const {
  return std::make_shared<const std::pair<std::shared_ptr<const void>, std::shared_ptr<const GraphMemory>>>(
      std::move(memory), graphs_);
}

}  // namespace weft
