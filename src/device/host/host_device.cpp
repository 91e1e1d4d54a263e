#include "device/host/host_device.h"

#include "device/host/host_verb.h"
#include "device/process_state.h"

#include <algorithm>
#include <cstring>

namespace weft {

namespace {

void* pointer(DeviceAddress address) noexcept {
  return reinterpret_cast<void*>(address);  // NOLINT: device addresses of the host device are pointers
}

/// Whether a node uses bytes of an allocation. A kernel's ranges are not known, but where its bindings start is.
bool uses(const BoundNode& bound, DeviceAddress base, std::uint64_t bytes) {
  const auto starts_inside = [&](DeviceAddress address) { return address - base < bytes; };
  if (const auto* fill = std::get_if<FillNode>(&bound.node)) return starts_inside(fill->destination);
  if (const auto* copy = std::get_if<CopyNode>(&bound.node)) {
    return starts_inside(copy->destination) || starts_inside(copy->source);
  }
  return std::ranges::any_of(bound_addresses(std::get<KernelNode>(bound.node), *bound.kernel), starts_inside);
}

}  // namespace

DeviceLimits host_limits() {
  return {.name = "host",
          .compute_capability = 90,
          .driver_version = 0,
          .multiprocessors = 132,
          .max_threads_per_block = 1024,
          .max_block = {1024, 1024, 64},
          .max_grid = {2147483647, 65535, 65535},
          .default_shared_bytes = 49152,
          .max_shared_bytes = 232448,
          .max_parameter_bytes = 32764,
          .total_memory_bytes = std::uint64_t{141} << 30,
          .fill_nodes_on_pool_memory = true};
}

std::shared_ptr<HostDevice> make_host_device(HostOptions options) {
  DeviceOpening opening;
  // A device that outlives the process's normal state is left as it is: in a child its worker is gone and its locks may
  // be taken, at exit its worker may be in the middle of a kernel.
  const auto close = [](const HostDevice* device) {
    if (process_state() == ProcessState::running) delete device;
  };
  std::shared_ptr<HostDevice> device(new HostDevice(std::move(options)), close);
  opening.succeed();
  return device;
}

HostDevice::HostDevice(HostOptions options)
    : limits_(std::move(options.limits)),
      memory_(limits_.total_memory_bytes),
      modules_("the module handle is unknown", "the module is unloaded"),
      kernels_("the kernel handle is unknown", "the kernel's module is unloaded"),
      graphs_("the graph handle is unknown", "the graph is destroyed"),
      executables_("the executable handle is unknown", "the executable is destroyed"),
      streams_("the stream handle is unknown", "the stream is destroyed"),
      events_("the event handle is unknown", "the event is destroyed"),
      executor_(options.shuffled, options.seed, [this](const Action& action) { run(action); }) {}

HostDevice::~HostDevice() = default;

// --- For tests -----------------------------------------------------------------------------------

void HostDevice::lose() {
  const std::lock_guard lock(mutex_);
  lose_locked();
}

std::vector<std::string> HostDevice::violations() const {
  const std::lock_guard lock(mutex_);
  return violations_;
}

HostObjects HostDevice::objects() const {
  const std::lock_guard lock(mutex_);
  return {.allocations = memory_.count(AddressInfo::Kind::device),
          .pinned = memory_.count(AddressInfo::Kind::pinned),
          .modules = modules_.size(),
          .graphs = graphs_.size(),
          .executables = executables_.size(),
          .streams = streams_.size(),
          .events = events_.size()};
}

void HostDevice::latch(const char* violation) { violations_.emplace_back(violation); }

void HostDevice::lose_locked() {
  if (!lost_.exchange(true)) log_lost("host", {StatusCode::device_lost, 0, "a sticky error"});
  executor_.abandon();
}

DeviceStatus HostDevice::lost() const noexcept {
  return {StatusCode::device_lost, 0, "an earlier error of the device is sticky"};
}

// --- The device itself ---------------------------------------------------------------------------

DeviceStatus HostDevice::health() const noexcept {
  if (const DeviceStatus status = process_status(); !status.ok()) return status;
  return lost_ ? lost() : DeviceStatus{};
}

DeviceStatus HostDevice::memory_info(MemoryInfo& info) noexcept {
  return verb([&]() -> DeviceStatus {
    MemoryInfo found = memory_.info();
    executables_.for_each([&](const Executable& executable) {
      found.free_bytes -= std::min(found.free_bytes, host_graph_bytes(executable.graph.entries().size()));
    });
    info = found;
    return {};
  });
}

DeviceStatus HostDevice::describe_address(DeviceAddress address, AddressInfo& info) noexcept {
  return verb([&]() -> DeviceStatus {
    const HostMemory::Allocation* found = memory_.find(address);
    info = found == nullptr ? AddressInfo{} : AddressInfo{found->kind, found->base, found->bytes};
    return {};
  });
}

// --- Memory --------------------------------------------------------------------------------------

DeviceStatus HostDevice::allocate(StreamHandle stream, std::uint64_t bytes, DeviceAddress& address) noexcept {
  return verb([&]() -> DeviceStatus {
    if (streams_.find(stream) == nullptr) return streams_.missing(stream);
    if (bytes == 0) return refused("an allocation of zero bytes");
    const DeviceAddress base = memory_.allocate(bytes, AddressInfo::Kind::device);
    if (base == 0) return {StatusCode::out_of_memory, 0, "the host device has no such piece of memory left"};
    address = base;
    return {};
  });
}

DeviceStatus HostDevice::free(StreamHandle stream, DeviceAddress address) noexcept {
  return verb([&]() -> DeviceStatus {
    Stream* found = streams_.find(stream);
    if (found == nullptr) return streams_.missing(stream);
    HostMemory::Allocation* allocation = memory_.find(address);
    if (allocation == nullptr || allocation->base != address || allocation->kind != AddressInfo::Kind::device) {
      return misuse("memory is freed that is not an allocation of the device");
    }
    if (allocation->free_queued) return misuse("memory is freed twice");
    enqueue(*found, FreeMemory{address});
    allocation->free_queued = true;
    return {};
  });
}

DeviceStatus HostDevice::trim(std::uint64_t keep_bytes) noexcept {
  return verb([&]() -> DeviceStatus {
    memory_.trim(keep_bytes);
    return {};
  });
}

DeviceStatus HostDevice::allocate_pinned(std::uint64_t bytes, PinnedMemory& memory) noexcept {
  return verb([&]() -> DeviceStatus {
    if (bytes == 0) return refused("a pinned allocation of zero bytes");
    const DeviceAddress base = memory_.allocate(bytes, AddressInfo::Kind::pinned);
    if (base == 0) return {StatusCode::out_of_memory, 0, "the process has no such piece of memory left"};
    memory = {static_cast<std::byte*>(pointer(base)), base};
    return {};
  });
}

DeviceStatus HostDevice::free_pinned(std::byte* host) noexcept {
  return verb([&]() -> DeviceStatus {
    const auto base = reinterpret_cast<DeviceAddress>(host);
    const HostMemory::Allocation* allocation = memory_.find(base);
    if (allocation == nullptr || allocation->base != base || allocation->kind != AddressInfo::Kind::pinned) {
      return misuse("pinned memory is freed that is not allocated");
    }
    if (is_used(base, allocation->bytes)) return misuse("pinned memory is freed while queued work uses it");
    memory_.release(base);
    return {};
  });
}

bool HostDevice::is_used(DeviceAddress base, std::uint64_t bytes) const {
  return executor_.any_unfinished([&](const Action& action) {
    const auto* bound = std::get_if<BoundNodeRef>(&action);
    return bound != nullptr && uses(**bound, base, bytes);
  });
}

// --- Immediate work ------------------------------------------------------------------------------

void HostDevice::enqueue(Stream& stream, Action action) {
  const HostExecutor::Submission submission{std::make_shared<HostOperation>(std::move(action)), {stream.last}};
  executor_.submit({&submission, 1});
  stream.last = submission.operation;
}

DeviceStatus HostDevice::enqueue_node(StreamHandle stream, const Node& node, bool pageable) {
  Stream* found = streams_.find(stream);
  if (found == nullptr) return streams_.missing(stream);
  BoundNodeRef bound;
  const DeviceStatus status = check_node(node, pageable, bound);
  if (status.ok()) enqueue(*found, std::move(bound));
  return status;
}

DeviceStatus HostDevice::fill(StreamHandle stream, const FillNode& fill) noexcept {
  return verb([&] { return enqueue_node(stream, fill, false); });
}

DeviceStatus HostDevice::copy(StreamHandle stream, const CopyNode& copy) noexcept {
  return verb([&] { return enqueue_node(stream, copy, true); });
}

// --- Streams and events --------------------------------------------------------------------------

DeviceStatus HostDevice::create_stream(StreamHandle& stream) noexcept {
  return verb([&]() -> DeviceStatus {
    stream = streams_.insert({});
    return {};
  });
}

DeviceStatus HostDevice::query_stream(StreamHandle stream) noexcept {
  return verb([&]() -> DeviceStatus {
    const Stream* found = streams_.find(stream);
    if (found == nullptr) return streams_.missing(stream);
    if (executor_.is_finished(found->last)) return {};
    return {StatusCode::not_ready, 0, "work is queued on the stream"};
  });
}

DeviceStatus HostDevice::synchronize_stream(StreamHandle stream) noexcept {
  HostOperationRef last;
  const DeviceStatus status = verb([&]() -> DeviceStatus {
    const Stream* found = streams_.find(stream);
    if (found == nullptr) return streams_.missing(stream);
    last = found->last;
    return {};
  });
  if (!status.ok()) return status;
  executor_.wait(last);
  return health();
}

DeviceStatus HostDevice::destroy_stream(StreamHandle stream) noexcept {
  return verb([&] { return streams_.erase(stream); });
}

DeviceStatus HostDevice::create_event(EventHandle& event) noexcept {
  return verb([&]() -> DeviceStatus {
    event = events_.insert({});
    return {};
  });
}

DeviceStatus HostDevice::record_event(EventHandle event, StreamHandle stream) noexcept {
  return verb([&]() -> DeviceStatus {
    Event* found = events_.find(event);
    if (found == nullptr) return events_.missing(event);
    const Stream* recorded = streams_.find(stream);
    if (recorded == nullptr) return streams_.missing(stream);
    *found = {.recorded = true, .last = recorded->last};
    return {};
  });
}

DeviceStatus HostDevice::wait_event(StreamHandle stream, EventHandle event) noexcept {
  return verb([&]() -> DeviceStatus {
    Stream* waiting = streams_.find(stream);
    if (waiting == nullptr) return streams_.missing(stream);
    const Event* found = events_.find(event);
    if (found == nullptr) return events_.missing(event);
    if (!found->recorded) return refused("an event is waited for that was never recorded");
    const HostExecutor::Submission join{std::make_shared<HostOperation>(Action{}), {waiting->last, found->last}};
    executor_.submit({&join, 1});
    waiting->last = join.operation;
    return {};
  });
}

DeviceStatus HostDevice::synchronize_event(EventHandle event) noexcept {
  HostOperationRef last;
  const DeviceStatus status = verb([&]() -> DeviceStatus {
    const Event* found = events_.find(event);
    if (found == nullptr) return events_.missing(event);
    if (!found->recorded) return refused("an event is waited for that was never recorded");
    last = found->last;
    return {};
  });
  if (!status.ok()) return status;
  executor_.wait(last);
  return health();
}

DeviceStatus HostDevice::destroy_event(EventHandle event) noexcept {
  return verb([&] { return events_.erase(event); });
}

DeviceStatus HostDevice::check_foreign_stream(StreamHandle stream) noexcept {
  return verb([&]() -> DeviceStatus {
    if (streams_.find(stream) == nullptr) return refused("there is no such stream");
    return {};
  });
}

DeviceStatus HostDevice::adopt_event(EventHandle foreign, EventHandle& event) noexcept {
  return verb([&]() -> DeviceStatus {
    const Event* found = events_.find(foreign);
    if (found == nullptr) return refused("there is no such event");
    event = events_.insert({.recorded = true, .last = found->last});
    return {};
  });
}

// --- On the worker -------------------------------------------------------------------------------

void HostDevice::run(const Action& action) {
  if (process_state() != ProcessState::running) return;  // At exit, what kernels use may be gone.
  if (const auto* free = std::get_if<FreeMemory>(&action)) {
    run_free(free->base);
  } else {
    run_node(*std::get<BoundNodeRef>(action));
  }
}

void HostDevice::run_node(const BoundNode& bound) {
  {
    const std::lock_guard lock(mutex_);
    if (lost_) return;
    if (would_fault(bound)) {
      latch("a node runs over memory that is not allocated");
      lose_locked();
      return;
    }
  }
  if (const auto* fill = std::get_if<FillNode>(&bound.node)) {
    std::memset(pointer(fill->destination), fill->value, fill->bytes);
  } else if (const auto* copy = std::get_if<CopyNode>(&bound.node)) {
    // Overlapping ranges are accepted, as by a driver.
    std::memmove(pointer(copy->destination), pointer(copy->source), copy->bytes);
  } else {
    try {
      run_kernel(std::get<KernelNode>(bound.node), *bound.kernel);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      latch("a kernel's host reference throws");
      lose_locked();
    }
  }
}

bool HostDevice::would_fault(const BoundNode& bound) {
  if (const auto* fill = std::get_if<FillNode>(&bound.node)) {
    return !memory_.holds(fill->destination, fill->bytes);
  }
  if (const auto* copy = std::get_if<CopyNode>(&bound.node)) {
    return (!bound.pageable_destination && !memory_.holds(copy->destination, copy->bytes)) ||
           (!bound.pageable_source && !memory_.holds(copy->source, copy->bytes));
  }
  return std::ranges::any_of(bound_addresses(std::get<KernelNode>(bound.node), *bound.kernel),
                             [&](DeviceAddress address) { return !memory_.holds(address, 1); });
}

void HostDevice::run_free(DeviceAddress base) {
  const std::lock_guard lock(mutex_);
  if (lost_) return;
  if (is_used(base, memory_.find(base)->bytes)) latch("memory is freed while queued work uses it");
  memory_.release(base);
}

}  // namespace weft
