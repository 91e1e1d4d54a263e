#include "device/cuda/cuda_device_impl.h"
#include "device/cuda/native_handle.h"

namespace weft::cuda {
namespace {

/// What an EventHandle points to. The driver takes an event never recorded for a completed one, so weft remembers.
struct CudaEvent {
  CUevent event = nullptr;
  std::atomic<bool> recorded = false;
  bool owned = true;
};

constexpr DeviceStatus kNeverRecorded{StatusCode::invalid, 0, "the event was never recorded"};
constexpr DeviceStatus kCaptured{StatusCode::invalid, 0, "the stream is being captured"};

}  // namespace

DeviceStatus CudaDevice::create_stream(StreamHandle& stream) noexcept {
  CUstream created = nullptr;
  const DriverScope scope = context_.enter();
  // Non-blocking: others' work on the legacy default stream would order ours.
  const DeviceStatus status =
      context_.call(driver().StreamCreate, &created, static_cast<unsigned int>(CU_STREAM_NON_BLOCKING));
  if (status.ok()) stream = to_handle<StreamHandle>(created);
  return status;
}

DeviceStatus CudaDevice::query_stream(StreamHandle stream) noexcept {
  const DriverScope scope = context_.enter();
  return context_.call(driver().StreamQuery, native<CUstream>(stream));
}

DeviceStatus CudaDevice::synchronize_stream(StreamHandle stream) noexcept {
  const DriverScope scope = context_.enter();
  return context_.call(driver().StreamSynchronize, native<CUstream>(stream));
}

DeviceStatus CudaDevice::destroy_stream(StreamHandle stream) noexcept {
  const DriverScope scope = context_.enter();
  return context_.call(driver().StreamDestroy, native<CUstream>(stream));
}

DeviceStatus CudaDevice::create_event(EventHandle& event) noexcept {
  return guarded([&] {
    auto created = std::make_unique<CudaEvent>();
    const DriverScope scope = context_.enter();
    const DeviceStatus status =
        context_.call(driver().EventCreate, &created->event,
                      static_cast<unsigned int>(CU_EVENT_DISABLE_TIMING | CU_EVENT_BLOCKING_SYNC));
    if (status.ok()) event = to_handle<EventHandle>(created.release());
    return status;
  });
}

DeviceStatus CudaDevice::record_event(EventHandle event, StreamHandle stream) noexcept {
  CudaEvent& record = *native<CudaEvent*>(event);
  const DriverScope scope = enter_for(native<CUstream>(stream));
  const DeviceStatus status = context_.call(driver().EventRecord, record.event, native<CUstream>(stream));
  if (status.ok()) record.recorded.store(true, std::memory_order_release);
  return status;
}

DeviceStatus CudaDevice::wait_event(StreamHandle stream, EventHandle event) noexcept {
  const CudaEvent& record = *native<const CudaEvent*>(event);
  if (!record.recorded.load(std::memory_order_acquire)) return context_.lost() ? health() : kNeverRecorded;
  const DriverScope scope = enter_for(native<CUstream>(stream));
  return context_.call(driver().StreamWaitEvent, native<CUstream>(stream), record.event, 0u);
}

DeviceStatus CudaDevice::synchronize_event(EventHandle event) noexcept {
  const CudaEvent& record = *native<const CudaEvent*>(event);
  if (!record.recorded.load(std::memory_order_acquire)) return context_.lost() ? health() : kNeverRecorded;
  const DriverScope scope = context_.enter();
  return context_.call(driver().EventSynchronize, record.event);
}

DeviceStatus CudaDevice::destroy_event(EventHandle event) noexcept {
  const std::unique_ptr<CudaEvent> record(native<CudaEvent*>(event));
  if (!record->owned) return context_.health();
  const DriverScope scope = context_.enter();
  return context_.call(driver().EventDestroy, record->event);
}

DriverScope CudaDevice::enter_for(CUstream stream) const noexcept {
  const bool is_default = stream == CU_STREAM_LEGACY || stream == CU_STREAM_PER_THREAD;
  return is_default ? context_.enter() : DriverScope(nullptr, nullptr);
}

DeviceStatus CudaDevice::check_foreign_stream(StreamHandle stream) noexcept {
  CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
  const DriverScope scope = context_.enter();
  const DeviceStatus status = context_.call(driver().StreamIsCapturing, native<CUstream>(stream), &capture);
  if (!status.ok()) return status;
  return capture == CU_STREAM_CAPTURE_STATUS_NONE ? status : kCaptured;
}

// A stream that waited for an event of a capture would join that capture, so the event is asked before any does. To
// query it would end the capture; to ask for the time between it and itself is refused as well and does not (driver
// 580). What else that says is no matter.
DeviceStatus CudaDevice::adopt_event(EventHandle foreign, EventHandle& event) noexcept {
  return guarded([&] {
    auto adopted = std::make_unique<CudaEvent>();
    adopted->event = native<CUevent>(foreign);
    adopted->recorded = true;
    adopted->owned = false;
    const DriverScope scope = context_.enter();
    float milliseconds = 0;
    const DeviceStatus captured =
        context_.call(driver().EventElapsedTime, &milliseconds, adopted->event, adopted->event);
    if (captured.native == CUDA_ERROR_CAPTURED_EVENT) return captured;
    const DeviceStatus status = context_.call(driver().EventQuery, adopted->event);
    if (!status.ok() && status.code != StatusCode::not_ready) return status;
    event = to_handle<EventHandle>(adopted.release());
    return DeviceStatus{};
  });
}

}  // namespace weft::cuda
