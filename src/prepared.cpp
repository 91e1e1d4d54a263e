#include "backoff.h"
#include "checked_math.h"
#include "context_state.h"
#include "device/own_kernels.h"
#include "error_context.h"
#include "fragment_state.h"
#include "graph_state.h"
#include "record.h"
#include "refusal.h"
#include "slot_plan.h"
#include "slot_pool.h"
#include <weft/error.h>
#include <weft/graph.h>
#include <weft/model.h>
#include <weft/prepared.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>

namespace weft {

namespace {

SlotPool& require(const std::shared_ptr<SlotPool>& pool, const char* what) {
  if (pool == nullptr) refuse(fmt::format("The {} is moved from.", what));
  return *pool;
}

void require_tensor(const char* what, const std::vector<TensorDesc>& tensors, std::size_t index, DType dtype) {
  if (index >= tensors.size()) refuse(fmt::format("There is no {} {}; the model has {}.", what, index, tensors.size()));
  if (tensors[index].dtype() != dtype) {
    refuse(fmt::format("The {} {} is {}; it is asked for as {}.", what, index, to_string(tensors[index]),
                       to_string(dtype)));
  }
}

void require_same(const char* what, const std::vector<TensorDesc>& first, const std::vector<TensorDesc>& other) {
  if (first.size() != other.size())
    refuse(fmt::format("The slot has {} {}; slot 0 has {}.", other.size(), what, first.size()));
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (!(first[i] == other[i]))
      refuse(fmt::format("The {}[{}] of the slot is {}; that of slot 0 is {}.", what, i, to_string(other[i]),
                         to_string(first[i])));
  }
}

void require_slots(const PrepareOptions& options) {
  if (options.slots == 0) refuse("A prepared model has at least 1 slot; 0 are asked for.");
}

// Before anything grows with the number of slots.
void require_room(const Context& context, const SlotPlan& plan, std::uint32_t slots) {
  const std::uint64_t total = context.properties().total_memory_bytes;
  const auto needed = checked_multiply(plan.device.reserved, slots);
  if (needed && *needed <= total) return;
  throw Error(ErrorCode::out_of_memory,
              fmt::format("{} slots of {} bytes each are more than the {} bytes of the device.", slots,
                          plan.device.reserved, total));
}

std::shared_ptr<const SlotPlan> plan_of(const Context& context, const InferenceGraph& inference,
                                        const PrepareOptions& options) {
  return std::make_shared<const SlotPlan>(plan_slot(*ContextAccess::state(context), inference, options));
}

std::vector<Region> regions_of(const std::vector<TensorRegion>& tensors) { return {tensors.begin(), tensors.end()}; }

}  // namespace

Inference::Inference(std::shared_ptr<SlotPool> pool, std::uint32_t slot, std::uint64_t run) noexcept
    : pool_(std::move(pool)), slot_(slot), run_(run) {}

Inference::Inference(Inference&& other) noexcept = default;

Inference& Inference::operator=(Inference&& other) noexcept {
  Inference taken(std::move(other));  // Takes this one's lease away with it.
  std::swap(pool_, taken.pool_);
  std::swap(slot_, taken.slot_);
  std::swap(run_, taken.run_);
  std::swap(complete_, taken.complete_);
  return *this;
}

Inference::~Inference() {
  if (pool_ != nullptr) pool_->slot(slot_).release();
}

bool Inference::wait(Deadline deadline) {
  const SlotPool& pool = require(pool_, "inference");
  const Slot& slot = pool.slot(slot_);
  if (complete_ || slot.has_finished(run_)) return complete_ = true;
  Backoff backoff(pool.options().spin, deadline);
  while (backoff.pause()) {
    if (slot.has_finished(run_)) return complete_ = true;
    if (backoff.is_time_to_ask()) slot.require_progress(run_);
  }
  slot.require_progress(run_);  // Who only polls learns of a lost device here.
  return complete_ = slot.has_finished(run_);
}

std::span<const std::byte> Inference::output_bytes(std::size_t index, DType dtype) const {
  const Slot& slot = require(pool_, "inference").slot(slot_);
  require_tensor("output", slot.plan().outputs, index, dtype);
  if (!complete_) throw Error(ErrorCode::busy, "The results are not ready; wait has not returned true yet.");
  return slot.output(index);
}

std::size_t Inference::output_index(const Region& region) const {
  return require(pool_, "inference").output_index(region);
}

ModelSlot::ModelSlot(std::shared_ptr<SlotPool> pool, std::uint32_t slot) noexcept
    : pool_(std::move(pool)), slot_(slot) {}

ModelSlot::ModelSlot(ModelSlot&& other) noexcept = default;

ModelSlot& ModelSlot::operator=(ModelSlot&& other) noexcept {
  ModelSlot taken(std::move(other));  // Takes this one's lease away with it.
  std::swap(pool_, taken.pool_);
  std::swap(slot_, taken.slot_);
  return *this;
}

ModelSlot::~ModelSlot() {
  if (pool_ != nullptr) pool_->slot(slot_).release();
}

std::span<std::byte> ModelSlot::input_bytes(std::size_t index, DType dtype) {
  const Slot& slot = require(pool_, "slot").slot(slot_);
  require_tensor("input", slot.plan().inputs, index, dtype);
  return slot.input(index);
}

std::size_t ModelSlot::input_index(const Region& region) const { return require(pool_, "slot").input_index(region); }

Inference ModelSlot::submit() && {
  const std::uint64_t run = require(pool_, "slot").slot(slot_).launch();
  return {std::move(pool_), slot_, run};
}

PreparedModel::PreparedModel(std::shared_ptr<SlotPool> pool) noexcept : pool_(std::move(pool)) {}

PreparedModel PreparedModel::prepare(const Context& context, const std::function<InferenceGraph(Context&)>& factory,
                                     PrepareOptions options) {
  require_slots(options);
  if (!factory) refuse("The factory of a prepared model is empty.");
  std::vector<std::shared_ptr<const SlotPlan>> plans;
  for (std::uint32_t i = 0; i < options.slots; ++i) {
    in_context([&] { return fmt::format("preparing slot {} of {}", i, options.slots); },
               [&] {
                 Context home = context;
                 plans.push_back(plan_of(context, factory(home), options));
                 if (i == 0) require_room(context, *plans.front(), options.slots);
                 require_same("inputs", plans.front()->inputs, plans.back()->inputs);
                 require_same("outputs", plans.front()->outputs, plans.back()->outputs);
               });
  }
  return PreparedModel(
      std::make_shared<SlotPool>(context, options, std::move(plans), std::vector<Region>{}, std::vector<Region>{}));
}

PreparedModel ModelFragment::prepare(PrepareOptions options) const {
  require_slots(options);
  Graph graph(state_->context, state_->label);
  RecordedTensors tensors = record_fragment(*state_, GraphAccess::state(graph), nullptr);
  const InferenceGraph inference{std::move(graph), std::move(tensors.inputs), std::move(tensors.outputs)};
  const std::shared_ptr<const SlotPlan> plan = plan_of(state_->context, inference, options);
  require_room(state_->context, *plan, options.slots);
  std::vector<std::shared_ptr<const SlotPlan>> plans(options.slots, plan);
  return PreparedModel(std::make_shared<SlotPool>(state_->context, options, std::move(plans),
                                                  regions_of(state_->inputs), regions_of(state_->outputs)));
}

std::optional<ModelSlot> PreparedModel::try_acquire() {
  const std::uint32_t slot = pool_->try_reserve();
  if (slot == pool_->size()) return {};
  return ModelSlot(pool_, slot);
}

std::optional<ModelSlot> PreparedModel::acquire(Deadline deadline) {
  std::optional<ModelSlot> slot = try_acquire();
  if (slot) return slot;
  Backoff backoff(pool_->options().spin, deadline);
  while (!slot && backoff.pause()) {
    if (backoff.is_time_to_ask()) pool_->require_progress();
    slot = try_acquire();
  }
  return slot;
}

std::uint32_t PreparedModel::slots() const noexcept { return pool_->size(); }

bool PreparedModel::is_idle() const noexcept {
  for (std::uint32_t i = 0; i < pool_->size(); ++i) {
    if (!pool_->slot(i).is_idle()) return false;
  }
  return true;
}

const Context& PreparedModel::context() const noexcept { return pool_->context(); }

const Topology& PreparedModel::topology() const noexcept { return pool_->slot(0).plan().topology; }

NodeCounts PreparedModel::node_counts(std::uint32_t index) const {
  if (index >= pool_->size()) refuse(fmt::format("There is no slot {}; the pool has {}.", index, pool_->size()));
  const Slot& slot = pool_->slot(index);
  std::unordered_map<NodeHandle, bool> is_own;
  for (std::size_t i = 0; i < slot.nodes().size(); ++i)
    is_own.emplace(slot.nodes()[i], slot.plan().operations[i].role.has_value());
  GraphReadBack read;
  check(ContextAccess::state(pool_->context())->api().read_back(slot.graph(), read), "read a graph back");
  NodeCounts counts;
  for (const auto& node : read.nodes) {
    const auto own = is_own.find(node.handle);
    if (own == is_own.end())
      throw Error(ErrorCode::internal,
                  fmt::format("The device's graph has a node \"{}\" that weft did not add.", node.symbol));
    using Kind = GraphReadBack::NodeReadBack::Kind;
    if (own->second && node.kind == Kind::kernel && !own::is_own_symbol(node.symbol)) {
      throw Error(ErrorCode::internal,
                  fmt::format("A node of weft's own runs \"{}\", which is none of weft's kernels.", node.symbol));
    }
    if (!own->second && node.kind != Kind::fill && node.kind != Kind::kernel)
      throw Error(ErrorCode::internal, "The device's graph has a command's node that is neither memset nor kernel.");
    ++(own->second ? counts.own_nodes : node.kind == Kind::fill ? counts.memset_nodes : counts.kernel_nodes);
  }
  if (counts.total() != slot.nodes().size()) {
    throw Error(ErrorCode::internal,
                fmt::format("The device's graph has {} nodes; weft added {}.", counts.total(), slot.nodes().size()));
  }
  return counts;
}

void PreparedModel::check_canaries() const {
  if (!pool_->options().separate_allocations)
    refuse("The model was prepared without separate_allocations; it has no canaries.");
  for (std::uint32_t i = 0; i < pool_->size(); ++i) pool_->slot(i).check_canaries();
}

}  // namespace weft
