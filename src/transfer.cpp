#include "transfer.h"

#include "context_state.h"
#include "device/process_state.h"
#include "error_context.h"
#include "overloaded.h"
#include "reclaim.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace weft {

namespace {

constexpr std::chrono::microseconds kSpin{200};  // A copy of a few MiB is done by then.

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

Transfers::Transfers(ContextState& context) : context_(context), staging_(context.domain(), Shortage::refuse) {
  lanes_.reserve(kMaxLanes);
}

Transfers::~Transfers() {
  // Fails only when the device is lost, and then nothing runs.
  for (const auto& lane : lanes_) static_cast<void>(context_.api().synchronize_stream(lane->stream()));
  if (fresh_ != nullptr) static_cast<void>(context_.api().synchronize_stream(fresh_->stream()));
}

const TransferLane& Transfers::lane() {
  check(process_status(), "copy memory");  // Before a lock that a thread which is gone may hold.
  const std::lock_guard lock(lanes_mutex_);
  for (const auto& lane : lanes_) {
    if (lane->lane->has_drained()) return *lane;
  }
  if (lanes_.size() < kMaxLanes) {
    lanes_.push_back(make_lane());
    return *lanes_.back();
  }
  return *lanes_[next_++ % kMaxLanes];
}

const TransferLane& Transfers::fresh_lane() {
  check(process_status(), "copy memory");  // As above.
  const std::lock_guard lock(lanes_mutex_);
  if (fresh_ == nullptr) fresh_ = make_lane();
  return *fresh_;
}

std::unique_ptr<TransferLane> Transfers::make_lane() {
  const std::shared_ptr<DeviceApi>& api = context_.domain()->api();
  if (overhead_ == nullptr) overhead_ = std::make_shared<AllocationDomain>(api);
  const auto page = std::make_shared<const PinnedBuffer>(overhead_, kWordBytes, "the completion word of copies");
  auto lane = std::make_unique<TransferLane>();
  lane->lane = std::make_shared<Lane>(api, page, page->host(), "copies", kSpin);
  lane->counter = DeviceMemory(overhead_, lane->stream(), kCounterBytes, "the counter of copies");
  lane->complete = make_complete(api, *context_.own_kernels().complete, lane->counter.address(), page->device());
  check(api->fill(lane->stream(), {lane->counter.address(), kCounterBytes, 0}), "zero a counter");
  return lane;
}

void Transfers::stage(DeviceAddress destination, std::span<const std::byte> source) {
  const StreamHandle stream = fresh_lane().stream();
  take_or_reclaim([&] {
    const std::lock_guard lock(staging_mutex_);
    staging_.copy(stream, destination, source);
  });
}

Completion Transfers::submit(const TransferLane& lane, std::span<const TrackedUse> uses, std::span<const Step> steps,
                             std::span<const Completion> producers) {
  const std::uint64_t run = context_.sequencer().submit(
      lane.lane, uses, [&] { queue(lane, steps); }, producers);
  return CompletionAccess::make(lane.lane, run);
}

Completion Transfers::join(TrackedMemory& memory, std::uint64_t begin, std::uint64_t bytes,
                           const Completion& producer) {
  if (context_.sequencer().has_drained(memory)) return producer;
  const std::array uses{TrackedUse{&memory, begin, begin + bytes, Access::read}};
  return submit(lane(), uses, {}, {&producer, 1});
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
    static_cast<void>(api.synchronize_stream(lane.stream()));
    throw;
  }
}

}  // namespace weft
