#include "checked_math.h"
#include "context_state.h"
#include "device/own_kernels.h"
#include "device_tensor_access.h"
#include "error_context.h"
#include "fragment_state.h"
#include "graph_state.h"
#include "lane.h"
#include "pool_charge.h"
#include "profiler_range.h"
#include "readback_state.h"
#include "record.h"
#include "refusal.h"
#include "slot_plan.h"
#include "slot_pool.h"
#include "watcher.h"
#include <weft/error.h>
#include <weft/graph.h>
#include <weft/model.h>
#include <weft/prepared.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>
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

const SlotTensor& require_tensor(const char* what, const std::vector<SlotTensor>& tensors, std::size_t index) {
  if (index >= tensors.size()) refuse(fmt::format("There is no {} {}; the model has {}.", what, index, tensors.size()));
  return tensors[index];
}

/// A tensor that the host sees, of that element type.
const SlotTensor& require_host_tensor(const char* what, const SlotPlan& plan, const std::vector<SlotTensor>& tensors,
                                      std::size_t index, DType dtype) {
  const SlotTensor& tensor = require_tensor(what, tensors, index);
  if (tensor.desc.dtype() != dtype) {
    refuse(
        fmt::format("The {} {} is {}; it is asked for as {}.", what, index, to_string(tensor.desc), to_string(dtype)));
  }
  if (!plan.is_host_visible(tensor)) {
    refuse(fmt::format("The {} {} stays in device memory: the model is not prepared for {}s on the host.", what, index,
                       what));
  }
  return tensor;
}

void require_same(const char* what, const std::vector<SlotTensor>& first, const std::vector<SlotTensor>& other) {
  if (first.size() != other.size())
    refuse(fmt::format("The slot has {} {}; slot 0 has {}.", other.size(), what, first.size()));
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (!(first[i].desc == other[i].desc))
      refuse(fmt::format("The {}[{}] of the slot is {}; that of slot 0 is {}.", what, i, to_string(other[i].desc),
                         to_string(first[i].desc)));
  }
}

/// An input or output that stands in memory outside its slot.
struct OutsideTensor {
  DeviceAddress begin = 0;
  DeviceAddress end = 0;
  std::string name;
  std::uint32_t slot = 0;
};

// Slots run at once, so what one reads and writes for its request is no other's.
void require_apart(const std::vector<std::shared_ptr<const SlotPlan>>& plans) {
  std::vector<OutsideTensor> outside;
  for (std::uint32_t slot = 0; slot < plans.size(); ++slot) {
    const SlotPlan& plan = *plans[slot];
    const auto collect = [&](const char* what, const std::vector<SlotTensor>& tensors) {
      for (std::size_t i = 0; i < tensors.size(); ++i) {
        const auto& memory = plan.allocations[tensors[i].place.allocation].memory;
        if (memory == nullptr) continue;
        const DeviceAddress begin = memory->address() + tensors[i].place.offset;
        outside.push_back({begin, begin + tensors[i].desc.bytes(), fmt::format("{}[{}]", what, i), slot});
      }
    };
    collect("inputs", plan.inputs);
    collect("outputs", plan.outputs);
  }
  for (std::size_t a = 0; a < outside.size(); ++a) {
    for (std::size_t b = 0; b < a; ++b) {
      const OutsideTensor& earlier = outside[b];
      const OutsideTensor& later = outside[a];
      if (earlier.slot == later.slot || earlier.begin >= later.end || later.begin >= earlier.end) continue;
      refuse(fmt::format("The {} of slot {} shares bytes with the {} of slot {}; slots run at the same time.",
                         later.name, later.slot, earlier.name, earlier.slot));
    }
  }
}

void require_count(const char* what, std::size_t given, const std::vector<SlotTensor>& tensors) {
  if (given != tensors.size()) refuse(fmt::format("{} {} are given; the model has {}.", given, what, tensors.size()));
}

const FormPlan& require_form(const SlotPlan& plan, std::size_t form) {
  if (form >= plan.forms.size())
    refuse(fmt::format("There is no request form {}; the model is prepared for {}.", form, plan.forms.size()));
  return plan.forms[form];
}

void require_options(const PrepareOptions& options) {
  if (options.slots == 0) refuse("A prepared model has at least 1 slot; 0 are asked for.");
  require_enumerator("copy method", options.copies, CopyMethod::engine);
  require_enumerator("order", options.order, Order::serial);
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

/// The plan of a pool of a fragment alone, once a slot.
std::vector<std::shared_ptr<const SlotPlan>> plan_fragment(const FragmentState& fragment,
                                                           const PrepareOptions& options) {
  require_options(options);
  Graph graph(fragment.context, fragment.label);
  RecordedTensors tensors = record_fragment(fragment, GraphAccess::state(graph), nullptr);
  const InferenceGraph inference{std::move(graph), std::move(tensors.inputs), std::move(tensors.outputs)};
  const std::shared_ptr<const SlotPlan> plan = plan_of(fragment.context, inference, options);
  require_room(fragment.context, *plan, options.slots);
  return std::vector<std::shared_ptr<const SlotPlan>>(options.slots, plan);
}

std::vector<Region> regions_of(const std::vector<TensorRegion>& tensors) { return {tensors.begin(), tensors.end()}; }

}  // namespace

Inference::Inference(std::shared_ptr<SlotPool> pool, std::uint32_t slot, std::size_t form, Completion completion,
                     std::vector<DeviceTensor> into) noexcept
    : pool_(std::move(pool)), slot_(slot), form_(form), completion_(std::move(completion)), into_(std::move(into)) {}

Inference::Inference(Inference&& other) noexcept = default;

Inference& Inference::operator=(Inference&& other) noexcept {
  Inference taken(std::move(other));  // Takes this one's lease away with it.
  std::swap(pool_, taken.pool_);
  std::swap(slot_, taken.slot_);
  std::swap(form_, taken.form_);
  std::swap(completion_, taken.completion_);
  std::swap(into_, taken.into_);
  return *this;
}

Inference::~Inference() {
  if (pool_ != nullptr) pool_->release(slot_);
}

bool Inference::wait(Deadline deadline) {
  const ProfilerRange range("wait", require(pool_, "inference").slot(slot_).lane()->log()->graph());
  return completion_.wait(deadline);
}

Completion Inference::completion() const {
  static_cast<void>(require(pool_, "inference"));
  return completion_;
}

std::span<const std::byte> Inference::output_bytes(std::size_t index, DType dtype) const {
  const Slot& slot = require(pool_, "inference").slot(slot_);
  const SlotTensor& output = require_host_tensor("output", slot.plan(), slot.plan().outputs, index, dtype);
  require_readable(slot.plan(), output, index);
  if (!completion_.is_done()) throw Error(ErrorCode::busy, "The results are not ready; the run is not done yet.");
  completion_.result();
  return slot.host_bytes(output);
}

void Inference::require_readable(const SlotPlan& plan, const SlotTensor& output, std::size_t index) const {
  // A device form copies nothing to the staging that the model has for its host forms.
  const bool is_in_place = output.host == output.place;
  if (!plan.is_host_visible(output) || (plan.forms[form_].form.outputs == Side::device && !is_in_place)) {
    refuse(
        fmt::format("The request was submitted with outputs on the device; output {} has a tensor and no bytes on the "
                    "host.",
                    index));
  }
}

std::size_t Inference::output_index(const Region& region) const {
  return require(pool_, "inference").output_index(region);
}

DeviceTensor Inference::tensor(std::size_t index) const {
  const Slot& slot = require(pool_, "inference").slot(slot_);
  const SlotPlan& plan = slot.plan();
  const SlotTensor& output = require_tensor("output", plan.outputs, index);
  if (plan.forms[form_].form.outputs != Side::device)
    refuse(fmt::format("The request was submitted with outputs on the host; output {} is no tensor.", index));
  if (!into_.empty()) {
    return DeviceTensorAccess::in_memory(output.desc, DeviceTensorAccess::memory(into_[index]),
                                         DeviceTensorAccess::offset(into_[index]), completion());
  }
  std::shared_ptr<TrackedMemory> leased(std::make_shared<SlotLease>(pool_, slot_), &slot.output_memory(index));
  return DeviceTensorAccess::in_memory(output.desc, std::move(leased), output.place.offset, completion());
}

Readback Inference::download() && {
  const Slot& slot = require(pool_, "inference").slot(slot_);
  const SlotPlan& plan = slot.plan();
  ReadbackState readback;
  for (std::size_t i = 0; i < plan.outputs.size(); ++i) {
    require_readable(plan, plan.outputs[i], i);
    readback.tensors.push_back({plan.outputs[i].desc, slot.host_bytes(plan.outputs[i])});
  }
  readback.completion = completion();
  readback.owner = std::make_shared<SlotLease>(pool_, slot_);
  const Inference consumed(std::move(*this));
  return ReadbackAccess::make(std::move(readback));
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
  if (pool_ == nullptr) return;
  pool_->slot(slot_).forget_late();
  pool_->release(slot_);
}

std::span<std::byte> ModelSlot::input_bytes(std::size_t index, DType dtype) {
  const Slot& slot = require(pool_, "slot").slot(slot_);
  return slot.host_bytes(require_host_tensor("input", slot.plan(), slot.plan().inputs, index, dtype));
}

std::size_t ModelSlot::input_index(const Region& region) const { return require(pool_, "slot").input_index(region); }

void ModelSlot::set_late(LateScalarId scalar, std::span<const std::byte> value) {
  require(pool_, "slot").slot(slot_).set_late(scalar, value);
}

void ModelSlot::bind(const Region& region, const DeviceTensor& tensor) {
  require(pool_, "slot").slot(slot_).bind_late(region, tensor);
}

std::size_t ModelSlot::find_form(Side inputs, SubmitOptions& options) const {
  if (options.outputs > Side::device) require_enumerator("side of a request's outputs", *options.outputs, Side::device);
  if (!options.into.empty()) {
    if (options.outputs == Side::host) refuse("Outputs on the host are not copied into tensors; state one of the two.");
    require_count("output tensors", options.into.size(), pool_->slot(slot_).plan().outputs);
    options.outputs = Side::device;
  }
  return pool_->find_form(inputs, options.outputs);
}

Inference ModelSlot::launch(std::size_t form, std::span<const DeviceTensor> inputs, SubmitOptions options) {
  Completion completion = pool_->slot(slot_).launch(
      {.form = form, .inputs = inputs, .outputs = options.into, .after = options.after, .pool = pool_});
  return {std::move(pool_), slot_, form, std::move(completion), std::move(options.into)};
}

Inference ModelSlot::submit(SubmitOptions options) && {
  static_cast<void>(require(pool_, "slot"));
  const std::size_t form = find_form(Side::host, options);
  return launch(form, {}, std::move(options));
}

Inference ModelSlot::submit(const std::vector<DeviceTensor>& inputs, SubmitOptions options) && {
  require_count("tensors", inputs.size(), require(pool_, "slot").slot(slot_).plan().inputs);
  const std::size_t form = find_form(Side::device, options);
  return launch(form, inputs, std::move(options));
}

Inference ModelSlot::submit_host(std::span<const std::span<const std::byte>> inputs, SubmitOptions options) && {
  const Slot& slot = require(pool_, "slot").slot(slot_);
  const SlotPlan& plan = slot.plan();
  require_count("spans", inputs.size(), plan.inputs);
  const std::size_t form = find_form(Side::host, options);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const SlotTensor& input = require_host_tensor("input", plan, plan.inputs, i, plan.inputs[i].desc.dtype());
    if (inputs[i].size() != input.desc.bytes()) {
      refuse(fmt::format("The span for input {} has {} bytes; the input {} has {}.", i, inputs[i].size(),
                         to_string(input.desc), input.desc.bytes()));
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i)
    std::memcpy(slot.host_bytes(plan.inputs[i]).data(), inputs[i].data(), inputs[i].size());
  return launch(form, {}, std::move(options));
}

PreparedModel::PreparedModel(std::shared_ptr<SlotPool> pool) noexcept : pool_(std::move(pool)) {}

PreparedModel PreparedModel::prepare(const Context& context, const std::function<InferenceGraph(Context&)>& factory,
                                     PrepareOptions options) {
  require_options(options);
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
  require_apart(plans);
  return PreparedModel(
      std::make_shared<SlotPool>(context, options, std::move(plans), std::vector<Region>{}, std::vector<Region>{}));
}

PreparedModel ModelFragment::prepare(PrepareOptions options) const {
  std::vector<std::shared_ptr<const SlotPlan>> plans = plan_fragment(*state_, options);
  return PreparedModel(std::make_shared<SlotPool>(state_->context, options, std::move(plans),
                                                  regions_of(state_->inputs), regions_of(state_->outputs)));
}

std::uint64_t ModelFragment::required_bytes(PrepareOptions options) const {
  return total_bytes(*ContextAccess::state(state_->context), need_of(options, plan_fragment(*state_, options)));
}

std::optional<ModelSlot> PreparedModel::take_free_slot() {
  const auto slot = pool_->try_reserve();
  return slot ? std::optional(ModelSlot(pool_, *slot)) : std::nullopt;
}

std::optional<ModelSlot> PreparedModel::try_acquire() {
  std::optional<ModelSlot> slot = take_free_slot();
  if (!slot) pool_->count_empty_acquire();
  return slot;
}

std::optional<ModelSlot> PreparedModel::acquire(Deadline deadline) {
  const auto slot = pool_->reserve(deadline);
  if (slot) return ModelSlot(pool_, *slot);
  pool_->count_empty_acquire();
  return {};
}

/// Waits for a slot on behalf of a callback.
class PreparedModel::AcquireWatch final : public Watch {
 public:
  AcquireWatch(std::shared_ptr<SlotPool> pool, Deadline deadline, AcquireCallback callback)
      : pool_(std::move(pool)), waiter_(pool_->queue(), true), deadline_(deadline), callback_(std::move(callback)) {}

  bool look(bool ask) override {
    std::optional<ModelSlot> slot;
    std::exception_ptr error;
    try {
      const auto index = waiter_.take();
      if (index) {
        slot = ModelSlot(pool_, *index);
      } else {
        const bool is_late = std::chrono::steady_clock::now() >= deadline_;
        // The first asks for all; who waits behind it learns so what it has found.
        if (is_late || (ask && waiter_.is_first())) {
          pool_->require_progress();
        } else if (ask) {
          pool_->require_usable();
        }
        if (!is_late) return false;
        pool_->count_empty_acquire();
      }
    } catch (...) {
      error = std::current_exception();
    }
    std::exchange(callback_, nullptr)(std::move(slot), std::move(error));
    return true;
  }

 private:
  std::shared_ptr<SlotPool> pool_;
  AcquireQueue::Waiter waiter_;
  Deadline deadline_;
  AcquireCallback callback_;
};

void PreparedModel::acquire_async(Deadline deadline, AcquireCallback callback) {
  if (!callback) refuse("The callback of an acquire is empty.");
  ContextAccess::state(pool_->context())
      ->watcher()
      .add(std::make_unique<AcquireWatch>(pool_, deadline, std::move(callback)));
}

std::uint32_t PreparedModel::slots() const noexcept { return pool_->size(); }

SlotStatistics PreparedModel::statistics() const noexcept { return pool_->statistics(); }

bool PreparedModel::is_idle() const noexcept {
  for (std::uint32_t i = 0; i < pool_->size(); ++i) {
    if (!pool_->slot(i).is_idle()) return false;
  }
  return true;
}

std::uint64_t PreparedModel::memory_bytes() const noexcept { return pool_->memory_bytes(); }

const Context& PreparedModel::context() const noexcept { return pool_->context(); }

const Topology& PreparedModel::topology(std::size_t form) const {
  return require_form(pool_->slot(0).plan(), form).topology;
}

const std::vector<std::uint32_t>& PreparedModel::odd_slots() const noexcept { return pool_->odd_slots(); }

NodeCounts PreparedModel::node_counts(std::uint32_t index, std::size_t form) const {
  if (index >= pool_->size()) refuse(fmt::format("There is no slot {}; the pool has {}.", index, pool_->size()));
  const Slot& slot = pool_->slot(index);
  const std::vector<Operation>& operations = require_form(slot.plan(), form).graph.operations;
  const GraphTemplate& graph = slot.graph(form);
  std::unordered_map<NodeHandle, bool> is_own;
  for (std::size_t i = 0; i < graph.nodes().size(); ++i) {
    if (!is_captured(operations[i])) is_own.emplace(graph.nodes()[i], operations[i].role.has_value());
  }
  const bool has_calls = is_own.size() < operations.size();
  GraphReadBack read;
  check(ContextAccess::state(pool_->context())->api().read_back(graph.graph(), read), "read a graph back");
  NodeCounts counts;
  for (const auto& node : read.nodes) {
    const auto own = is_own.find(node.handle);
    if (own == is_own.end() && has_calls) {
      ++counts.captured_nodes;
      continue;
    }
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
  if (counts.total() - counts.captured_nodes != is_own.size()) {
    throw Error(ErrorCode::internal,
                fmt::format("The device's graph has {} nodes beside those of captured calls; weft added {}.",
                            counts.total() - counts.captured_nodes, is_own.size()));
  }
  return counts;
}

void PreparedModel::check_canaries() const {
  if (!pool_->options().separate_allocations)
    refuse("The model was prepared without separate_allocations; it has no canaries.");
  for (std::uint32_t i = 0; i < pool_->size(); ++i) pool_->slot(i).check_canaries();
}

}  // namespace weft
