#include "call_recorder.h"
#include "device/own_kernels.h"
#include "error_context.h"
#include "graph_builder.h"
#include "graph_plan.h"
#include "own_dispatch.h"
#include "refusal.h"
#include "session_state.h"
#include <weft/plan/arena.h>
#include <weft/plan/schedule.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>
#include <variant>

namespace weft {

namespace {

// Its graphs run without a request that could bring anything.
void require_nothing_late(std::span<const Operation> operations, std::span<const Allocation> allocations) {
  for (std::size_t i = 0; i < operations.size(); ++i) {
    in_context([&] { return fmt::format("validating commands[{}]", i); },
               [&] {
                 for (const ByteUse& use : operations[i].uses.uses)
                   require_not_late(allocations[use.allocation], "a session's own graphs run without one");
                 const auto* dispatch = std::get_if<DispatchOperation>(&operations[i].action);
                 if (dispatch == nullptr || dispatch->late.empty()) return;
                 refuse(
                     fmt::format("The scalar \"{}\" is one that each request brings; a session's own graphs run "
                                 "without one.",
                                 dispatch->late.front().scalar->label));
               });
  }
}

GraphPlan plan_graph(const std::string& title, std::vector<Operation> operations) {
  std::vector<CommandUses> uses;
  uses.reserve(operations.size());
  std::ranges::transform(operations, std::back_inserter(uses), &Operation::uses);
  GraphPlan plan{title, std::move(operations), {}};
  plan.dependencies.resize(plan.operations.size());
  for (const ScheduleEdge& edge : schedule(uses).edges) plan.dependencies[edge.to].push_back(edge.from);
  return plan;
}

}  // namespace

SessionState::Growth::~Growth() {
  for (const std::uint32_t allocation : added_) session_.memory_[allocation] = {};
}

void SessionState::Growth::add(std::uint32_t allocation) {
  if (session_.address(allocation) != 0) return;
  added_.push_back(allocation);
  session_.memory_[allocation] = session_.allocate_zeroed(session_.allocations_[allocation]);
}

PlacedMemory SessionState::allocate_zeroed(const Allocation& allocation) {
  PlacedMemory memory(domain_, stream(), allocation.bytes, allocation.placement,
                      fmt::format("\"{}\" of a session", allocation.label));
  if (allocation.placement == Placement::device)
    on_device([&] { check(api().fill(stream(), {memory.address(), allocation.bytes, 0}), "zero a session's memory"); });
  return memory;
}

DeviceAddress SessionState::address(std::uint32_t allocation) const noexcept {
  if (const auto& weight = allocations_[allocation].weight; weight != nullptr) return weight->address();
  return memory_[allocation].address();
}

const Allocation& SessionState::require_bytes(const Region& region, const char* doing) const {
  const Allocation& allocation = require_region(scope(), region);
  require_not_late(allocation, "a session has no bytes of it");
  if (region.bytes == 0) refuse(fmt::format("The {} of allocation \"{}\" is empty.", doing, allocation.label));
  return allocation;
}

void SessionState::copy_in(DeviceAddress destination, std::span<const std::byte> bytes) {
  on_device([&] { staging_.copy(stream(), destination, bytes); });
}

void SessionState::upload(const Region& region, std::span<const std::byte> bytes) {
  Growth growth(*this);
  growth.add(region.allocation);
  staging_.reserve(bytes.size());
  growth.keep();
  copy_in(address(region.allocation) + region.offset, bytes);
}

void SessionState::read(std::span<const Region> regions, std::span<const std::span<std::byte>> destinations) {
  std::vector<std::uint64_t> sizes;
  std::ranges::transform(regions, std::back_inserter(sizes), &Region::bytes);
  const ArenaPlan places = plan_arena(sizes);
  Growth growth(*this);
  for (const Region& region : regions) growth.add(region.allocation);
  if (readback_.bytes() < places.reserved) {
    readback_ = {};  // First, so that the two never count together.
    readback_ = PinnedBuffer(domain_, places.reserved, "a session's readback");
  }
  growth.keep();
  on_device([&] {
    for (std::size_t i = 0; i < regions.size(); ++i) {
      check(api().copy(stream(), {readback_.device() + places.offsets[i],
                                  address(regions[i].allocation) + regions[i].offset, regions[i].bytes}),
            "copy from the device");
    }
    check(api().synchronize_stream(stream()), "finish the session's work");
  });
  for (std::size_t i = 0; i < regions.size(); ++i)
    std::memcpy(destinations[i].data(), readback_.host() + places.offsets[i], regions[i].bytes);
}

const std::shared_ptr<const LoadedKernel>& SessionState::fill_kernel() {
  if (fill_kernel_ == nullptr) {
    const KernelSpec spec = own::fill_spec();
    fill_kernel_ = load_kernel(api(), load_module(domain_->api(), spec.image), spec);
  }
  return fill_kernel_;
}

void SessionState::record(const std::string& key, std::span<const Command> commands) {
  if (commands.empty()) refuse(fmt::format("The graph \"{}\" has no commands.", key));
  GraphPlan plan = plan_graph(key, validate_commands(scope(), commands));
  require_nothing_late(plan.operations, allocations_);
  Growth growth(*this);
  for (Operation& operation : plan.operations) {
    for (const ByteUse& use : operation.uses.uses) growth.add(use.allocation);
    if (std::holds_alternative<FillOperation>(operation.action) && !api().limits().fill_nodes_on_pool_memory)
      fill_by_kernel(operation, fill_kernel());
  }
  std::vector<DeviceAddress> addresses(allocations_.size());
  for (std::uint32_t i = 0; i < addresses.size(); ++i) addresses[i] = address(i);
  RecordedGraph graph;
  std::vector<Allocation> workspaces(allocations_);
  add_workspaces(plan.operations, workspaces);
  for (std::size_t i = allocations_.size(); i < workspaces.size(); ++i)
    addresses.push_back(graph.workspaces.emplace_back(allocate_zeroed(workspaces[i])).address());
  for (const Operation& operation : plan.operations) {
    const auto* captured = std::get_if<CapturedOperation>(&operation.action);
    if (captured != nullptr) graph.calls.push_back(captured->call);
  }
  graph.captured = CallRecorder(domain_->api()).record(plan.operations, addresses, stream());
  graph.executable = GraphTemplate(domain_->api(), plan, addresses, graph.captured).instantiate();
  // What libraries tied to the calls of an earlier graph of the key must outlast its runs.
  if (const auto earlier = graphs_.find(key); earlier != graphs_.end() && !earlier->second.calls.empty()) synchronize();
  graphs_.insert_or_assign(key, std::move(graph));
  growth.keep();
}

void SessionState::replay(const std::string& key) {
  const auto found = graphs_.find(key);
  if (found == graphs_.end()) refuse(fmt::format("The session has recorded no graph \"{}\".", key));
  on_device([&] { check(api().launch(found->second.executable.get(), stream()), "launch the graph"); });
}

void SessionState::synchronize() {
  on_device([&] { check(api().synchronize_stream(stream()), "finish the session's work"); });
}

}  // namespace weft
