#include "slot.h"

#include "error_context.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <string>
#include <utility>

namespace weft {

namespace {

constexpr std::uint64_t kCanaryBytes = kArenaAlignment;
constexpr std::uint8_t kCanary = 0xC7;

}  // namespace

Slot::Slot(ContextState& context, std::shared_ptr<const SlotPlan> plan, std::shared_ptr<const PinnedBuffer> pinned,
           std::uint64_t pinned_offset, bool separate_allocations)
    : context_(context),
      plan_(std::move(plan)),
      pinned_(std::move(pinned)),
      pinned_offset_(pinned_offset),
      stream_(create_stream(context.domain()->api())),
      retirement_(1),
      graph_(build_graph(context.domain()->api(), *plan_, place(separate_allocations))),
      word_(reinterpret_cast<std::uint64_t*>(staging(plan_->word).data())) {
  retirement_.front().memory = pinned_;
  retirement_.front().plan = plan_;
  requested_ = {context.domain(), &AllocationDomain::requested, plan_->requested_bytes, plan_->requested_allocations};
  check(context_.api().upload(graph_.executable.get(), stream_.get()), "upload a graph");
}

Slot::~Slot() {
  // Asked before the frees below join the stream: they use nothing of what a run uses.
  const bool is_running = context_.api().query_stream(stream_.get()).code == StatusCode::not_ready;
  graph_ = {};
  memory_.clear();
  if (is_running) {
    retirement_.front().stream = std::move(stream_);
    context_.retire(std::move(retirement_));
  }
  context_.reap();
}

void Slot::settle() {
  in_context([&] { return describe(); },
             [&] { check(context_.api().synchronize_stream(stream_.get()), "zero its memory"); });
}

bool Slot::try_reserve() noexcept {
  if (reserved_.load(std::memory_order_relaxed) || reserved_.exchange(true, std::memory_order_acquire)) return false;
  if (has_drained()) return true;
  release();
  return false;
}

std::uint64_t Slot::launch() {
  in_context([&] { return describe(); },
             [&] { check(context_.api().launch(graph_.executable.get(), stream_.get()), "launch the graph"); });
  const std::uint64_t run = launched_.load(std::memory_order_relaxed) + 1;
  launched_.store(run, std::memory_order_release);
  return run;
}

void Slot::require_progress(std::uint64_t run) const {
  const DeviceStatus status = context_.api().query_stream(stream_.get());
  if (status.code == StatusCode::not_ready) return;
  in_context([&] { return describe(); },
             [&] {
               check(status, fmt::format("finish run {}", run));
               if (!has_finished(run)) {
                 throw Error(ErrorCode::internal,
                             fmt::format("The slot's stream drained, but its run {} did not report completion.", run));
               }
             });
}

std::string Slot::describe() const { return fmt::format("running graph \"{}\"", plan_->topology.title); }

std::span<std::byte> Slot::staging(std::uint32_t allocation) const noexcept {
  return {pinned_->host() + pinned_offset_ + plan_->pinned.offsets[allocation], plan_->allocations[allocation].bytes};
}

DeviceAddress Slot::allocate(const std::string& what, std::uint64_t bytes, std::uint64_t canary) {
  memory_.emplace_back(context_.domain(), stream_.get(), canary + bytes, what);
  const DeviceAddress address = memory_.back().address();
  if (canary > 0) check(context_.api().fill(stream_.get(), {address, canary, kCanary}), "fill a canary");
  check(context_.api().fill(stream_.get(), {address + canary, bytes, 0}), "zero a slot's memory");
  return address + canary;
}

std::vector<DeviceAddress> Slot::place(bool separate_allocations) {
  const std::vector<Allocation>& allocations = plan_->allocations;
  const std::string arena_name = fmt::format("a slot of graph \"{}\"", plan_->topology.title);
  DeviceAddress arena = 0;
  if (!separate_allocations) arena = allocate(arena_name, plan_->device.reserved, 0);
  std::vector<DeviceAddress> addresses(allocations.size(), 0);
  for (std::size_t i = 0; i < allocations.size(); ++i) {
    if (allocations[i].weight != nullptr) {
      addresses[i] = allocations[i].weight->buffer.address();
    } else if (allocations[i].placement == Placement::shared) {
      addresses[i] = pinned_->device() + pinned_offset_ + plan_->pinned.offsets[i];
    } else if (separate_allocations) {
      addresses[i] =
          allocate(fmt::format("\"{}\" of {}", allocations[i].label, arena_name), allocations[i].bytes, kCanaryBytes);
    } else {
      addresses[i] = arena + plan_->device.offsets[i];
    }
  }
  return addresses;
}

void Slot::check_canaries() const {
  std::vector<std::uint8_t> bytes(kCanaryBytes);
  auto memory = memory_.begin();
  for (const Allocation& allocation : plan_->allocations) {
    if (allocation.weight != nullptr || allocation.placement != Placement::device) continue;
    copy_now(context_.api(), stream_.get(),
             {reinterpret_cast<DeviceAddress>(bytes.data()), memory->address(), kCanaryBytes}, "read a canary");
    ++memory;
    const auto changed =
        std::ranges::find_if(bytes.rbegin(), bytes.rend(), [](std::uint8_t byte) { return byte != kCanary; });
    if (changed == bytes.rend()) continue;
    throw Error(ErrorCode::failed, fmt::format("A byte {} before the start of \"{}\" of graph \"{}\" was overwritten.",
                                               changed - bytes.rbegin() + 1, allocation.label, plan_->topology.title));
  }
}

}  // namespace weft
