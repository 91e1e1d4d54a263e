#include "slot.h"

#include "cleared_at_end.h"
#include "device/copy_entry.h"
#include "device_tensor_access.h"
#include "error_context.h"
#include "overlap.h"
#include "profiler_range.h"
#include "refusal.h"
#include "slot_pool.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <new>
#include <string>
#include <unordered_map>
#include <utility>

namespace weft {

namespace {

constexpr std::uint8_t kCanary = 0xC7;

/// Bytes of the tensors that the host does not write or read in place.
std::uint64_t staged_bytes(const std::vector<SlotTensor>& tensors) noexcept {
  std::uint64_t bytes = 0;
  for (const SlotTensor& tensor : tensors) {
    if (tensor.host.allocation != tensor.place.allocation) bytes += tensor.desc.bytes();
  }
  return bytes;
}

}  // namespace

Slot::Slot(ContextState& context, std::shared_ptr<const SlotPlan> plan, std::uint64_t model, std::uint32_t index,
           PinnedPart pinned, PinnedPart word, const PrepareOptions& options, PoolCharge& charge)
    : context_(context),
      plan_(std::move(plan)),
      pinned_(std::move(pinned)),
      word_(std::move(word)),
      lane_(std::make_shared<Lane>(
          context.domain()->api(), word_.page, word_.host(),
          LaneOptions{.name = fmt::format("graph \"{}\" in slot {}", plan_->forms.front().graph.title, index),
                      .spin = options.spin,
                      .hang_after = options.hang_after,
                      .log = std::make_shared<RunLog>(context.trace(),
                                                      TraceTrack{model, plan_->forms.front().graph.title, index})})),
      retirement_(1),
      memory_(std::make_shared<std::vector<DeviceMemory>>()),
      calls_(std::make_shared<std::vector<UniqueGraph>>()),
      submission_(new Submission(context, lane_)),
      index_(index),
      staged_input_bytes_(staged_bytes(plan_->inputs)),
      staged_output_bytes_(staged_bytes(plan_->outputs)) {
  retirement_.front() = Retired{.lane = lane_,
                                .run = 0,
                                .memory = pinned_.page,
                                .charges = charge.keep(memory_),
                                .code = plan_->run_owners,
                                .calls = calls_};
  place(charge, options.separate_allocations);
  requested_ = {context.domain(), &AllocationDomain::requested, plan_->requested_bytes, plan_->requested_allocations};
  if (plan_->has_device_inputs()) write_table(plan_->input_table, plan_->inputs, true);
  if (plan_->has_device_outputs()) {
    write_table(plan_->output_table, plan_->outputs, false);
  }
  if (plan_->has_device_outputs() || plan_->has_host_written_outputs()) expose_outputs();
  std::size_t late_uses = 0;
  for (const LateRegionPlan& region : plan_->late.regions) late_uses += region.uses.size();
  if (!plan_->late.is_empty()) late_ = std::make_unique<LateArguments>(plan_->late);
  uses_.reserve(plan_->uses.size() + late_uses + plan_->inputs.size() + plan_->outputs.size());
  producers_.reserve(plan_->late.regions.size() + plan_->inputs.size() + plan_->outputs.size());
}

Slot::~Slot() {
  for (const auto& memory : exposed_) {
    context_.sequencer().precede(*memory, lane_->stream());
    if (memory->placement() == Placement::shared) context_.retire_behind(*memory, pinned_.page);
  }
  // Asked before the frees below join the stream: they use nothing of what a run uses, and neither does the zeroing.
  const bool is_running =
      lane_->launched() > 0 && context_.api().query_stream(lane_->stream()).code == StatusCode::not_ready;
  executables_.clear();
  for (DeviceMemory& memory : *memory_) memory.release();
  if (is_running) context_.retire(std::move(retirement_));
  context_.reap();
}

void Slot::record_calls(CallRecorder& recorder) {
  *calls_ = recorder.record(plan_->forms.front().graph.operations, addresses_, lane_->stream());
}

void Slot::add_executable(UniqueExecutable executable, std::shared_ptr<const GraphTemplate> graph) {
  check(context_.api().upload(executable.get(), lane_->stream()), "upload a graph");
  if (late_ != nullptr) late_->add_executable(plan_->forms[executables_.size()].graph, addresses_);
  executables_.push_back(std::move(executable));
  graphs_.push_back(std::move(graph));
}

void Slot::settle() {
  in_context([&] { return lane_->describe(); },
             [&] { check(context_.api().synchronize_stream(lane_->stream()), "zero its memory"); });
}

bool Slot::has_drained() const noexcept {
  return lane_->has_drained() &&
         std::ranges::all_of(exposed_, [&](const auto& memory) { return context_.sequencer().has_drained(*memory); });
}

bool Slot::try_reserve() noexcept {
  std::uint32_t none = 0;
  if (leases_.load(std::memory_order_relaxed) != 0 ||
      !leases_.compare_exchange_strong(none, 1, std::memory_order_acquire, std::memory_order_relaxed))
    return false;
  if (!lane_->has_hung() && has_drained()) {
    lane_->log()->acquired();
    return true;
  }
  release();
  return false;
}

const SubmissionPtr& Slot::renew_submission() {
  if (submission_->is_unique()) {
    submission_->renew();
  } else {
    submission_ = SubmissionPtr(new Submission(context_, lane_));
  }
  return submission_;
}

Completion Slot::launch(const SlotLaunch& given) {
  RunLog& runs = *lane_->log();
  const ProfilerRange range("submit", runs.graph());
  static_cast<void>(submission_->poll());  // So that the end of a run that nobody looked at is seen before the next.
  const std::uint64_t run = lane_->launched() + 1;
  runs.asked(run);
  try {
    return start(given);
  } catch (...) {
    runs.refused(run);
    throw;
  }
}

Completion Slot::start(const SlotLaunch& given) {
  return in_context(
      [&] { return lane_->describe(); },
      [&] {
        const FormPlan& plan = plan_->forms[given.form];
        uses_.assign(plan_->uses.begin(), plan_->uses.end());
        const ClearedAtEnd clearing{producers_};
        producers_.assign(given.after.begin(), given.after.end());
        if (late_ != nullptr) use_late();
        fixed_uses_ = uses_.size();
        if (plan.form.inputs == Side::device) use_inputs(given.inputs);
        if (plan.form.outputs == Side::device) use_outputs(given.outputs);
        const SubmissionPtr& submission = renew_submission();
        if (late_ != nullptr) patch_late(given.form);  // Nobody else launches the executable until this run is over.
        const auto launch = [this, form = given.form] {
          check(context_.api().launch(executables_[form].get(), lane_->stream()), "launch the graph");
          count_copies(plan_->forms[form].form);
        };
        if (uses_.empty() && producers_.empty()) {
          submission->launched(lane_->run(launch));
        } else {
          const auto gate = [&] {
            return context_.gate([launch, lease = std::make_shared<const SlotLease>(given.pool, index_),
                                  inputs = std::vector<DeviceTensor>(given.inputs.begin(), given.inputs.end()),
                                  outputs = std::vector<DeviceTensor>(given.outputs.begin(), given.outputs.end()),
                                  late = late_memory()] { launch(); });
          };
          context_.sequencer().submit(submission, lane_, {.uses = uses_, .producers = producers_}, launch, gate);
        }
        forget_late();
        return CompletionAccess::make(submission);
      });
}

void Slot::count_copies(const RequestForm& form) noexcept {
  const auto copied = [&](std::uint32_t table, const std::vector<SlotTensor>& tensors) {
    std::uint64_t bytes = 0;
    if (tensors.empty()) return bytes;
    const auto* entry = reinterpret_cast<const own::CopyEntry*>(host_address(table));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (entry[i].source != 0 && entry[i].destination != 0) bytes += entry[i].bytes;
    }
    return bytes;
  };
  if (form.inputs == Side::host) {
    up_bytes_.add(staged_input_bytes_);
  } else {
    device_bytes_.add(copied(plan_->input_table, plan_->inputs));
  }
  if (form.outputs == Side::host) {
    down_bytes_.add(staged_output_bytes_);
  } else {
    device_bytes_.add(copied(plan_->output_table, plan_->outputs));
  }
}

SlotStatistics Slot::statistics() const noexcept {
  const SlotStatistics runs = runs_of(*lane_);
  return {.slots = 1,
          .executables = executables_.size(),
          .leased = leases_.load(std::memory_order_relaxed) > 0 ? 1u : 0u,
          .in_flight = runs.in_flight,
          .unhealthy = lane_->has_hung() ? 1u : 0u,
          .runs = runs.runs,
          .copies = {.up_bytes = up_bytes_.value(),
                     .device_bytes = device_bytes_.value(),
                     .down_bytes = down_bytes_.value()},
          .empty_acquires = 0,
          .patched_nodes = late_ != nullptr ? late_->patched() : 0};
}

std::span<std::byte> Slot::host_bytes(const SlotTensor& tensor) const noexcept {
  return {host_address(tensor.host.allocation) + tensor.host.offset, tensor.desc.bytes()};
}

// The half of each entry that is the same in every run.
void Slot::write_table(std::uint32_t table, const std::vector<SlotTensor>& tensors, bool into_slot) {
  if (tensors.empty()) return;
  auto* entry = reinterpret_cast<own::CopyEntry*>(host_address(table));
  for (const SlotTensor& tensor : tensors) {
    const DeviceAddress address = addresses_[tensor.place.allocation] + tensor.place.offset;
    *entry++ =
        into_slot ? own::CopyEntry{address, 0, tensor.desc.bytes()} : own::CopyEntry{0, address, tensor.desc.bytes()};
  }
}

void Slot::expose_outputs() {
  std::unordered_map<std::uint32_t, TrackedMemory*> exposed;  // By allocation.
  for (const SlotTensor& output : plan_->outputs) {
    const std::uint32_t index = output.place.allocation;
    const Allocation& allocation = plan_->allocations[index];
    TrackedMemory*& memory = exposed[index];
    if (!allocation.is_private()) {
      memory = allocation.memory.get();
    } else if (memory == nullptr) {
      std::byte* host = allocation.placement == Placement::shared ? host_address(index) : nullptr;
      memory = exposed_
                   .emplace_back(std::make_unique<TrackedMemory>(context_, allocation.label, addresses_[index], host,
                                                                 allocation.bytes))
                   .get();
      if (!plan_->is_host_written(index)) memory->belong_to(*lane_);
    }
    output_memory_.push_back(memory);
  }
}

DeviceAddress Slot::use(const DeviceTensor& tensor, const SlotTensor& place, Access access, std::size_t peers) {
  const std::uint64_t bytes = place.desc.bytes();
  if (DeviceTensorAccess::is_in_graph(tensor)) refuse("The tensor is of an unprepared graph; it has no bytes yet.");
  if (!(tensor.desc() == place.desc)) {
    refuse(fmt::format("The tensor is {}; the model's is {}.", to_string(tensor.desc()), to_string(place.desc)));
  }
  const std::shared_ptr<TrackedMemory>& memory = DeviceTensorAccess::memory(tensor);
  if (&memory->home() != &context_) refuse("The tensor belongs to another context.");
  const std::uint64_t begin = DeviceTensorAccess::offset(tensor);
  const DeviceAddress address = memory->address() + begin;
  // A slot's own memory has no log of what its runs write: the tensor tells of the last one.
  if (tensor.completion().poll() != CompletionStatus::done) producers_.push_back(tensor.completion());
  const DeviceAddress own = addresses_[place.place.allocation] + place.place.offset;
  if (address == own) return own;  // A copy onto itself: the run's own uses cover it.
  for (std::size_t i = 0; i < uses_.size(); ++i) {
    const TrackedUse& other = uses_[i];
    const bool is_checked = i < fixed_uses_ || i >= peers;
    if (is_checked && (writes(access) || writes(other.access)) &&
        overlap(address, bytes, other.memory->address() + other.begin, other.end - other.begin)) {
      refuse(fmt::format(
          "The tensor is the bytes {} to {} of \"{}\", of which the same run {} {} to {}; nothing orders "
          "the two.",
          begin, begin + bytes, memory->label(), writes(other.access) ? "writes" : "reads", other.begin, other.end));
    }
  }
  uses_.push_back({memory.get(), begin, begin + bytes, access});
  return address;
}

void Slot::use_inputs(std::span<const DeviceTensor> inputs) {
  auto* table = reinterpret_cast<own::CopyEntry*>(host_address(plan_->input_table));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const SlotTensor& input = plan_->inputs[i];
    const DeviceAddress source = in_context([&] { return fmt::format("binding inputs[{}]", i); },
                                            [&] { return use(inputs[i], input, Access::read, uses_.size()); });
    table[i].source = source == table[i].destination ? 0 : source;
  }
}

void Slot::use_outputs(std::span<const DeviceTensor> outputs) {
  auto* table = reinterpret_cast<own::CopyEntry*>(host_address(plan_->output_table));
  const std::size_t first = uses_.size();  // An output may overwrite an input: it is copied after all inputs are.
  for (std::size_t i = 0; i < plan_->outputs.size(); ++i) {
    const SlotTensor& output = plan_->outputs[i];
    DeviceAddress destination = 0;
    if (!outputs.empty()) {
      destination = in_context([&] { return fmt::format("binding outputs[{}]", i); },
                               [&] { return use(outputs[i], output, Access::write, first); });
    }
    table[i].destination = destination == table[i].source ? 0 : destination;
  }
}

void Slot::forget_tables() {
  if (plan_->has_device_inputs() && !plan_->inputs.empty()) {
    auto* table = reinterpret_cast<own::CopyEntry*>(host_address(plan_->input_table));
    for (std::size_t i = 0; i < plan_->inputs.size(); ++i) table[i].source = 0;
  }
  if (plan_->has_device_outputs() && !plan_->outputs.empty()) {
    auto* table = reinterpret_cast<own::CopyEntry*>(host_address(plan_->output_table));
    for (std::size_t i = 0; i < plan_->outputs.size(); ++i) table[i].destination = 0;
  }
}

UniqueGraph Slot::make_graph(std::size_t form) {
  return in_context([&] { return lane_->describe(); },
                    [&] {
                      const GraphPlan& planned = plan_->forms[form].graph;
                      if (late_ != nullptr) late_->require_complete();
                      const GraphPlan& plan = late_ != nullptr ? late_->complete(planned, form) : planned;
                      const std::uint64_t control = plan_->allocations[plan_->control].bytes;
                      if (aside_.address() == 0) {
                        const StreamHandle stream = context_.transfers().fresh_lane().stream();
                        DeviceMemory memory(context_.domain(), stream, control + kWordBytes,
                                            fmt::format("what graphs of \"{}\" count in", plan.title));
                        check(context_.api().fill(stream, {memory.address(), memory.bytes(), 0}), "zero a counter");
                        check(context_.api().synchronize_stream(stream), "zero a counter");
                        aside_ = std::move(memory);
                      }
                      forget_tables();
                      std::vector<DeviceAddress> addresses(addresses_);
                      addresses[plan_->control] = aside_.address();
                      addresses[plan_->word] = aside_.address() + control;
                      if (late_ != nullptr) late_->place(addresses);
                      return GraphTemplate(context_.domain()->api(), plan, addresses, calls()).take();
                    });
}

void* Slot::place_of(const SlotTensor& tensor, Side side) const noexcept {
  if (side == Side::host) return host_bytes(tensor).data();
  return reinterpret_cast<void*>(addresses_[tensor.place.allocation] + tensor.place.offset);
}

DeviceAddress Slot::allocate(PoolCharge& charge, const std::string& what, std::uint64_t bytes, std::uint64_t canary) {
  memory_->emplace_back(context_.domain(), lane_->stream(), canary + bytes, what, charge.take(canary + bytes));
  const DeviceAddress address = memory_->back().address();
  if (canary > 0) check(context_.api().fill(lane_->stream(), {address, canary, kCanary}), "fill a canary");
  check(context_.api().fill(lane_->stream(), {address + canary, bytes, 0}), "zero a slot's memory");
  return address + canary;
}

void Slot::place(PoolCharge& charge, bool separate_allocations) {
  const std::vector<Allocation>& allocations = plan_->allocations;
  const std::string arena_name = fmt::format("a slot of graph \"{}\"", plan_->forms.front().graph.title);
  DeviceAddress arena = 0;
  if (!separate_allocations) arena = allocate(charge, arena_name, plan_->device.reserved, 0);
  addresses_.resize(allocations.size(), 0);
  for (std::size_t i = 0; i < allocations.size(); ++i) {
    if (allocations[i].weight != nullptr) {
      addresses_[i] = allocations[i].weight->address();
    } else if (allocations[i].memory != nullptr) {
      addresses_[i] = allocations[i].memory->address();
    } else if (allocations[i].late != nullptr) {
      continue;
    } else if (allocations[i].placement == Placement::shared) {
      addresses_[i] = i == plan_->word ? word_.device() : pinned_.device() + plan_->pinned.offsets[i];
    } else if (separate_allocations) {
      addresses_[i] = allocate(charge, fmt::format("\"{}\" of {}", allocations[i].label, arena_name),
                               allocations[i].bytes, kCanaryBytes);
    } else {
      addresses_[i] = arena + plan_->device.offsets[i];
    }
  }
  // Nodes have an address there from the start, and run at none but those that requests bring.
  for (std::size_t i = 0; i < allocations.size(); ++i) {
    if (allocations[i].late != nullptr) addresses_[i] = addresses_[plan_->control];
  }
}

void Slot::check_canaries() const {
  std::vector<std::uint8_t> bytes(kCanaryBytes);
  auto memory = memory_->begin();
  for (const Allocation& allocation : plan_->allocations) {
    if (!allocation.is_private() || allocation.placement != Placement::device) continue;
    copy_now(context_.api(), lane_->stream(),
             {reinterpret_cast<DeviceAddress>(bytes.data()), memory->address(), kCanaryBytes}, "read a canary");
    ++memory;
    const auto changed =
        std::ranges::find_if(bytes.rbegin(), bytes.rend(), [](std::uint8_t byte) { return byte != kCanary; });
    if (changed == bytes.rend()) continue;
    throw Error(ErrorCode::failed,
                fmt::format("A byte {} before the start of \"{}\" of graph \"{}\" was overwritten.",
                            changed - bytes.rbegin() + 1, allocation.label, plan_->forms.front().graph.title));
  }
}

}  // namespace weft
