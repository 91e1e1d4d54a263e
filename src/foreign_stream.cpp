#include "foreign_stream.h"

#include "backoff.h"
#include "device_tensor_access.h"
#include "error_context.h"
#include "lane.h"
#include "prepared_access.h"
#include "refusal.h"
#include "sequencer.h"
#include "slot_pool.h"
#include "submission.h"
#include "tracked_memory.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <exception>
#include <new>
#include <optional>
#include <utility>

namespace weft::foreign {

namespace {

// What a device refuses of others' objects is the mistake of who gave them, and not weft's.
void require_usable(DeviceStatus status, const char* what) {
  if (status.code == StatusCode::invalid) refuse(fmt::format("The {} cannot be used: {}.", what, status.detail));
  check(status, fmt::format("use the {} of somebody else", what));
}

SlotPool& require(const std::shared_ptr<SlotPool>& pool, const char* what) {
  if (pool == nullptr) refuse(fmt::format("The {} is moved from.", what));
  return *pool;
}

ContextState& context_of(const SlotPool& pool) { return *ContextAccess::state(pool.context()); }

void require_in_memory(const DeviceTensor& tensor) {
  if (!DeviceTensorAccess::is_in_graph(tensor)) return;
  refuse(fmt::format("The tensor {} is of an unprepared graph; it has no bytes that others could use.",
                     to_string(tensor.desc())));
}

/// Refuses work that no stream can follow yet.
void require_launched(const Completion& work) {
  const Submission* submission = CompletionAccess::submission(work);
  if (submission != nullptr && submission->waits_for_host())
    throw Error(ErrorCode::busy, "The work waits for the host and is not launched yet; no stream can follow it.");
}

[[nodiscard]] TrackedUse use_of(const DeviceTensor& tensor, Access access) {
  const std::uint64_t begin = DeviceTensorAccess::offset(tensor);
  return {DeviceTensorAccess::memory(tensor).get(), begin, begin + tensor.desc().bytes(), access};
}

void follow(const Lane& lane, DeviceApi& api, const UniqueEvent& event) {
  check(api.wait_event(lane.stream(), event.get()), "make a slot follow work outside weft");
}

/// The outputs of a run that others may be reading, where their memory has a log.
std::vector<TrackedUse> logged_outputs(const Inference& run, const Slot& slot) {
  std::vector<TrackedUse> uses;
  for (const DeviceTensor& tensor : PreparedAccess::into(run)) {
    if (!tensor.desc().is_empty()) uses.push_back(use_of(tensor, Access::read));
  }
  if (!uses.empty() || !slot.has_output_memory()) return uses;
  const std::vector<SlotTensor>& outputs = slot.plan().outputs;
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    TrackedMemory& memory = slot.output_memory(i);
    const std::uint64_t begin = outputs[i].place.offset;
    if (memory.slot_lane() == nullptr) uses.push_back({&memory, begin, begin + outputs[i].desc.bytes(), Access::read});
  }
  return uses;
}

/// Bytes that are reserved for what a callback queues on a stream.
class Scope {
 public:
  Scope(ContextState& context, StreamHandle stream, const std::vector<Use>& uses, const std::vector<Completion>& after)
      : context_(context), stream_(stream), producers_(after) {
    for (const Use& use : uses) {
      require_in_memory(use.tensor);
      producers_.push_back(use.tensor.completion());
      const TrackedUse tracked = use_of(use.tensor, use.access);
      if (tracked.memory == nullptr) continue;
      if (&tracked.memory->home() != &context_) refuse("A tensor that the callback uses belongs to another context.");
      uses_.push_back(tracked);
    }
  }

  void reserve(Deadline deadline) {
    std::optional<std::uint64_t> reservation;
    const auto is_reserved = [&] {
      reservation = context_.sequencer().try_reserve({.uses = uses_, .producers = producers_}, stream_);
      return reservation.has_value();
    };
    // Whoever waits for the host waits long: no spinning.
    if (!wait_until(std::chrono::nanoseconds(0), deadline, is_reserved, [&] { ask_devices(); }))
      throw Error(ErrorCode::busy, "What the callback would follow waits for the host.");
    reservation_ = *reservation;
  }

  /// Enters what was queued, and ends the reservation: behind it others are in order. Where that fails, for want of
  /// memory too, waits for the stream instead.
  [[nodiscard]] Completion fence() {
    try {
      return context_.transfers().fence(record(context_, stream_).get(), uses_, reservation_);
    } catch (Error& error) {
      if (end_when_drained()) return {};
      error.add_context("fencing what a callback queued, whose bytes stay reserved now");
      throw;
    } catch (const std::bad_alloc&) {
      if (end_when_drained()) return {};
      throw;
    }
  }

 private:
  void ask_devices() const {
    for (const Completion& producer : producers_) {
      if (Submission* submission = CompletionAccess::submission(producer)) submission->ask_device();
    }
  }
  // Not asked of a stream that is being captured, which that would break.
  [[nodiscard]] bool end_when_drained() const noexcept {
    if (!context_.api().check_foreign_stream(stream_).ok() || !context_.api().synchronize_stream(stream_).ok())
      return false;
    context_.sequencer().end(uses_, reservation_);
    return true;
  }

  ContextState& context_;
  StreamHandle stream_;
  std::vector<TrackedUse> uses_;
  std::vector<Completion> producers_;
  std::uint64_t reservation_ = 0;
};

}  // namespace

void require_stream(const ContextState& context, StreamHandle stream) {
  require_usable(context.api().check_foreign_stream(stream), "stream");
}

UniqueEvent record(const ContextState& context, StreamHandle stream) {
  return in_context([] { return "joining a stream of somebody else"; },
                    [&] {
                      require_usable(context.api().check_foreign_stream(stream), "stream");
                      UniqueEvent event = create_event(context.domain()->api());
                      require_usable(context.api().record_event(event.get(), stream), "stream");
                      return event;
                    });
}

UniqueEvent adopt(const ContextState& context, EventHandle event) {
  return in_context([] { return "joining an event of somebody else"; },
                    [&] {
                      EventHandle adopted{};
                      require_usable(context.api().adopt_event(event, adopted), "event");
                      return UniqueEvent(context.domain()->api(), adopted);
                    });
}

ContextState& context_of(const ModelSlot& slot) { return context_of(require(PreparedAccess::pool(slot), "slot")); }

void wait_for(const ModelSlot& slot, const UniqueEvent& event) {
  const SlotPool& pool = require(PreparedAccess::pool(slot), "slot");
  follow(*pool.slot(PreparedAccess::slot(slot)).lane(), context_of(pool).api(), event);
}

void wait_for(StreamHandle stream, const Completion& work) {
  const Submission* submission = CompletionAccess::submission(work);
  if (submission == nullptr) return;
  const std::shared_ptr<ContextState> home = submission->home().lock();
  if (home == nullptr) return work.result();  // It has waited for all its work.
  in_context([] { return "joining a stream of somebody else"; },
             [&] {
               require_usable(home->api().check_foreign_stream(stream), "stream");
               require_launched(work);
               // Asked once, and after that: what is pending now is launched, and runs on though it be cancelled.
               if (work.is_done()) return work.result();
               check(submission->lane()->precede(stream), "make the stream follow a run");
             });
}

Completion completion(ContextState& context, const UniqueEvent& event) {
  return context.transfers().fence(event.get());
}

void release(Inference&& run, StreamHandle stream) {
  const SlotPool& pool = require(PreparedAccess::pool(run), "inference");
  const Slot& slot = pool.slot(PreparedAccess::slot(run));
  ContextState& context = context_of(pool);
  const Completion completion = run.completion();
  require_launched(completion);
  const UniqueEvent event = record(context, stream);
  const std::vector<TrackedUse> uses = logged_outputs(run, slot);
  if (PreparedAccess::into(run).empty()) follow(*slot.lane(), context.api(), event);
  if (!uses.empty()) static_cast<void>(context.transfers().fence(event.get(), uses));
  const Inference released(std::move(run));
}

void release(DeviceTensor& tensor, StreamHandle stream, Access access) {
  require_in_memory(tensor);
  if (const std::shared_ptr<TrackedMemory>& memory = DeviceTensorAccess::memory(tensor); memory != nullptr) {
    require_launched(tensor.completion());
    ContextState& context = memory->home();
    const UniqueEvent event = record(context, stream);
    if (const Lane* lane = memory->slot_lane()) {
      follow(*lane, context.api(), event);
    } else {
      const TrackedUse use = use_of(tensor, access);
      static_cast<void>(context.transfers().fence(event.get(), {&use, 1}));
    }
  }
  const TensorDesc empty(tensor.desc().dtype(), {0});
  tensor = DeviceTensorAccess::in_memory(empty, nullptr, 0, {});
}

DeviceAddress address(const DeviceTensor& tensor) {
  require_in_memory(tensor);
  const std::shared_ptr<TrackedMemory>& memory = DeviceTensorAccess::memory(tensor);
  return memory == nullptr ? 0 : memory->address() + DeviceTensorAccess::offset(tensor);
}

Completion scoped(ContextState& context, StreamHandle stream, const std::vector<Use>& uses,
                  const std::vector<Completion>& after, Deadline deadline, const std::function<void()>& callback) {
  if (!callback) refuse("The callback of a scope is empty.");
  for (const Use& use : uses) require_enumerator("access of a callback to a tensor", use.access, Access::read_write);
  Scope scope(context, stream, uses, after);
  require_stream(context, stream);
  scope.reserve(deadline);
  try {
    callback();
  } catch (...) {
    try {
      static_cast<void>(scope.fence());
    } catch (const std::exception&) {
      // The bytes stay reserved; the callback's own error is the one to tell.
    }
    throw;
  }
  return scope.fence();
}

Graph graph(const PreparedModel& model, const ModelSlot& slot, std::size_t form) {
  SlotPool& pool = require(PreparedAccess::pool(slot), "slot");
  if (&pool != PreparedAccess::pool(model).get()) refuse("The slot belongs to another prepared model.");
  Slot& reserved = pool.slot(PreparedAccess::slot(slot));
  const SlotPlan& plan = reserved.plan();
  if (form >= plan.forms.size()) {
    refuse(fmt::format("There is no request form {}; the model is prepared for {}.", form, plan.forms.size()));
  }
  Graph made;
  for (const SlotTensor& input : plan.inputs)
    made.inputs.push_back(reserved.place_of(input, plan.forms[form].form.inputs));
  for (const SlotTensor& output : plan.outputs)
    made.outputs.push_back(reserved.place_of(output, plan.forms[form].form.outputs));
  made.graph = reserved.make_graph(form);
  return made;
}

}  // namespace weft::foreign
