#pragma once

#include "context_state.h"
#include "device/device_api.h"
#include "device/handles.h"
#include <weft/completion.h>
#include <weft/contract.h>
#include <weft/deadline.h>
#include <weft/device_tensor.h>
#include <weft/prepared.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

// Streams, events and graphs of others, by the device's own words for them. What weft/cuda.h says of each holds here;
// that header has them by CUDA's types.

namespace weft::foreign {

/// Errors: `invalid` for no stream of the device, or one that is being captured.
void require_stream(const ContextState& context, StreamHandle stream);
/// What is queued on a stream by now, as an event. Errors: those of require_stream.
[[nodiscard]] UniqueEvent record(const ContextState& context, StreamHandle stream);
/// What another event was last recorded behind. Errors: `invalid` for an event of a capture.
[[nodiscard]] UniqueEvent adopt(const ContextState& context, EventHandle event);

/// The context of a slot that is reserved. Errors: `invalid` where it is moved from.
[[nodiscard]] ContextState& context_of(const ModelSlot& slot);

/// Makes the slot's next run follow the event.
void wait_for(const ModelSlot& slot, const UniqueEvent& event);
/// Makes the stream follow the work.
void wait_for(StreamHandle stream, const Completion& work);
/// When the event has happened.
[[nodiscard]] Completion completion(ContextState& context, const UniqueEvent& event);

/// Give up a lease against what is queued on the stream.
void release(Inference&& run, StreamHandle stream);
void release(DeviceTensor& tensor, StreamHandle stream, Access access);

/// 0 for an empty tensor.
[[nodiscard]] DeviceAddress address(const DeviceTensor& tensor);

/// What a callback queues.
struct Use {
  DeviceTensor tensor;
  Access access = Access::read;
};

/// Has `callback` queue work on the stream in its place among weft's.
[[nodiscard]] Completion scoped(ContextState& context, StreamHandle stream, const std::vector<Use>& uses,
                                const std::vector<Completion>& after, Deadline deadline,
                                const std::function<void()>& callback);

/// A graph of somebody's own over a slot's memory.
struct Graph {
  UniqueGraph graph;
  std::vector<void*> inputs;
  std::vector<void*> outputs;
};
[[nodiscard]] Graph graph(const PreparedModel& model, const ModelSlot& slot, std::size_t form);

}  // namespace weft::foreign
