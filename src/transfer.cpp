#include "transfer.h"

#include "context_state.h"
#include "device/process_state.h"
#include "error_context.h"
#include "kept_forever.h"
#include "overloaded.h"
#include "reclaim.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace weft {

namespace {

// What `weft_complete` counts in; on a line of its own.
constexpr std::uint64_t kCounterBytes = 128;

UniqueExecutable make_complete(const std::shared_ptr<DeviceApi>& api, const LoadedKernel& kernel, DeviceAddress counter,
                               DeviceAddress word) {
  const UniqueGraph graph = create_graph(api);
  const std::array<std::uint64_t, 2> arguments{counter, word};
  const KernelNode node{.kernel = kernel.handle,
                        .grid = {},
                        .block = kernel.spec.block,
                        .dynamic_shared_bytes = 0,
                        .parameters = parameter_block(kernel.compiled, arguments)};
  NodeHandle handle{};
  check(api->add_node(graph.get(), node, {}, handle), "add a graph node");
  return instantiate(api, graph.get());
}

}  // namespace

Transfers::Transfers(ContextState& context)
    : context_(context), staging_(std::make_shared<StagedCopy>(context.domain(), Shortage::refuse)) {
  lanes_.reserve(kMaxLanes);
}

Transfers::~Transfers() {
  const auto drain = [&](const TransferLane& lane) {
    log_swallowed(context_.api().synchronize_stream(lane.stream()), "wait for the last copies of a context");
  };
  for (const Lanes* lanes : {&lanes_, &foreign_lanes_}) {
    for (const auto& lane : *lanes) drain(*lane);
  }
  if (fresh_ != nullptr) drain(*fresh_);
}

void Transfers::abandon() noexcept {
  for (Lanes* lanes : {&lanes_, &foreign_lanes_}) {
    keep_forever(std::make_shared<Lanes>(std::move(*lanes)));
    lanes->clear();
  }
  keep_forever(std::shared_ptr<TransferLane>(std::move(fresh_)));
  keep_forever(std::move(staging_));
}

const TransferLane& Transfers::lane() { return pick(lanes_, kMaxLanes, "copies"); }

const TransferLane& Transfers::pick(Lanes& lanes, std::size_t most, const char* name) {
  check(process_status(), "copy memory");  // Before a lock that a thread which is gone may hold.
  return *take_or_reclaim(context_.domain()->budget(), context_.api(), [&] {
    const std::lock_guard lock(lanes_mutex_);
    for (const auto& lane : lanes) {
      if (lane->lane->has_drained()) return lane.get();
    }
    if (lanes.size() < most) {
      lanes.push_back(make_lane(name));
      return lanes.back().get();
    }
    return lanes[next_++ % most].get();
  });
}

const TransferLane& Transfers::fresh_lane() {
  check(process_status(), "copy memory");  // As above.
  return *take_or_reclaim(context_.domain()->budget(), context_.api(), [&] {
    const std::lock_guard lock(lanes_mutex_);
    if (fresh_ == nullptr) fresh_ = make_lane("copies");
    return fresh_.get();
  });
}

std::unique_ptr<TransferLane> Transfers::make_lane(const char* name) {
  const std::shared_ptr<DeviceApi>& api = context_.domain()->api();
  if (overhead_ == nullptr) overhead_ = std::make_shared<AllocationDomain>(api);
  const auto page = std::make_shared<const PinnedBuffer>(overhead_, kWordBytes, "the completion word of copies");
  auto lane = std::make_unique<TransferLane>();
  lane->lane = std::make_shared<Lane>(api, page, page->host(), LaneOptions{.name = name});
  lane->counter = DeviceMemory(overhead_, lane->stream(), kCounterBytes, "the counter of copies");
  lane->complete = make_complete(api, *context_.own_kernels().complete, lane->counter.address(), page->device());
  check(api->fill(lane->stream(), {lane->counter.address(), kCounterBytes, 0}), "zero a counter");
  return lane;
}

void Transfers::stage(DeviceAddress destination, std::span<const std::byte> source) {
  const StreamHandle stream = fresh_lane().stream();
  take_or_reclaim(context_.domain()->budget(), context_.api(), [&] {
    const std::lock_guard lock(staging_mutex_);
    staging_->copy(stream, destination, source);
  });
  up_bytes_.add(source.size());
}

Completion Transfers::submit(const TransferLane& lane, const SubmissionOrder& order, std::span<const Step> steps,
                             std::span<const std::shared_ptr<TrackedMemory>> owners) {
  const SubmissionPtr submission(new Submission(context_, lane.lane));
  context_.sequencer().submit(
      submission, lane.lane, order, [&] { queue(lane, steps); },
      [&] {
        return context_.gate([this, &lane, steps = std::vector<Step>(steps.begin(), steps.end()),
                              owners = std::vector<std::shared_ptr<TrackedMemory>>(owners.begin(), owners.end())] {
          queue(lane, steps);
        });
      });
  count(order.uses, steps);
  return CompletionAccess::make(submission);
}

Completion Transfers::fence(EventHandle event, std::span<const TrackedUse> uses, std::uint64_t reservation) {
  const TransferLane& lane = pick(foreign_lanes_, kMaxForeignLanes, "work outside weft");
  const SubmissionPtr submission(new Submission(context_, lane.lane));
  context_.sequencer().enter_foreign(submission, lane.lane, uses, reservation, [&] {
    check(context_.api().wait_event(lane.stream(), event), "follow work outside weft");
    check(context_.api().launch(lane.complete.get(), lane.stream()), "tell when work outside weft is done");
  });
  return CompletionAccess::make(submission);
}

void Transfers::count(std::span<const TrackedUse> uses, std::span<const Step> steps) noexcept {
  submitted_.add(1);
  const auto is_on_host = [&](DeviceAddress address) {
    return std::ranges::any_of(uses, [&](const TrackedUse& use) {
      return use.memory->placement() == Placement::shared && address >= use.memory->address() &&
             address - use.memory->address() < use.memory->bytes();
    });
  };
  for (const Step& step : steps) {
    const auto* copy = std::get_if<CopyNode>(&step);
    if (copy == nullptr) continue;
    if (is_on_host(copy->destination)) {
      down_bytes_.add(copy->bytes);
    } else {
      (is_on_host(copy->source) ? up_bytes_ : device_bytes_).add(copy->bytes);
    }
  }
}

TransferStatistics Transfers::statistics() {
  const std::lock_guard lock(lanes_mutex_);
  return {.lanes = lanes_.size() + foreign_lanes_.size() + (fresh_ == nullptr ? 0 : 1),
          .submitted = submitted_.value(),
          .copies = {
              .up_bytes = up_bytes_.value(), .device_bytes = device_bytes_.value(), .down_bytes = down_bytes_.value()}};
}

Completion Transfers::join(const std::shared_ptr<TrackedMemory>& memory, std::uint64_t begin, std::uint64_t bytes,
                           const Completion& producer) {
  if (context_.sequencer().has_drained(*memory)) return producer;
  const std::array uses{TrackedUse{memory.get(), begin, begin + bytes, Access::read}};
  return submit(lane(), {.uses = uses, .producers = {&producer, 1}}, {}, {&memory, 1});
}

void Transfers::queue(const TransferLane& lane, std::span<const Step> steps) const {
  DeviceApi& api = context_.api();
  const Overloaded enqueue{[&](const FillNode& fill) { return api.fill(lane.stream(), fill); },
                           [&](const CopyNode& copy) { return api.copy(lane.stream(), copy); }};
  try {
    for (const Step& step : steps) check(std::visit(enqueue, step), "copy memory");
    check(api.launch(lane.complete.get(), lane.stream()), "complete a copy");
  } catch (...) {
    // No run tells when the steps before are done, and the caller may free what they use.
    log_swallowed(api.synchronize_stream(lane.stream()), "wait for copies that are not followed up");
    throw;
  }
}

}  // namespace weft
