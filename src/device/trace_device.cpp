#include "device/trace_device.h"

#include <spdlog/fmt/fmt.h>

#include <cstring>
#include <span>
#include <string_view>

namespace weft {

namespace {

std::string_view to_string(StatusCode code) noexcept {
  switch (code) {
    case StatusCode::ok:
      return "ok";
    case StatusCode::not_ready:
      return "not_ready";
    case StatusCode::invalid:
      return "invalid";
    case StatusCode::out_of_memory:
      return "out_of_memory";
    case StatusCode::unsupported:
      return "unsupported";
    case StatusCode::device_lost:
      return "device_lost";
    case StatusCode::internal:
      return "internal";
  }
  return "unknown";
}

std::string describe(Dim3 dim) { return fmt::format("{},{},{}", dim.x, dim.y, dim.z); }

std::string hexadecimal(std::span<const std::byte> bytes) {
  std::string text = "0x";
  for (std::size_t i = bytes.size(); i-- > 0;) {
    text += fmt::format("{:02x}", std::to_integer<unsigned>(bytes[i]));
  }
  return text;
}

DeviceAddress read_address(std::span<const std::byte> bytes) noexcept {
  DeviceAddress address = 0;
  std::memcpy(&address, bytes.data(), sizeof(address));
  return address;
}

}  // namespace

std::vector<std::string> TracingDevice::lines() const {
  const std::lock_guard lock(mutex_);
  return lines_;
}

void TracingDevice::write(Verb verb, std::string arguments, DeviceStatus status, std::string result) {
  std::string line(weft::to_string(verb));
  if (!arguments.empty()) line += " " + arguments;
  if (!status.ok()) {
    line += fmt::format(" -> {}", to_string(status.code));
  } else if (!result.empty()) {
    line += " -> " + result;
  }
  lines_.push_back(std::move(line));
}

template <class First, class Second>
DeviceStatus TracingDevice::traced_pair(Verb verb, First first, Second second, DeviceStatus status) {
  const std::lock_guard lock(mutex_);
  write(verb, fmt::format("{} {}", name(first), name(second)), status);
  return status;
}

template <class Handle, class Destroy>
DeviceStatus TracingDevice::traced_destroy(Verb verb, Handle handle, Destroy destroy) {
  const std::lock_guard lock(mutex_);
  const DeviceStatus status = destroy();
  write(verb, name(handle), status);
  return status;
}

// --- Names ---------------------------------------------------------------------------------------

std::string TracingDevice::name(StreamHandle stream) const { return fmt::format("stream {}", streams_.of(stream)); }

std::string TracingDevice::name(EventHandle event) const { return fmt::format("event {}", events_.of(event)); }

std::string TracingDevice::name(ModuleHandle module) const { return fmt::format("module {}", modules_.of(module)); }

std::string TracingDevice::name(GraphHandle graph) const { return fmt::format("graph {}", graphs_.of(graph)); }

std::string TracingDevice::name(ExecutableHandle executable) const {
  return fmt::format("executable {}", executables_.of(executable));
}

const TracingDevice::Memory* TracingDevice::find_memory(DeviceAddress address, DeviceAddress& base) const {
  const auto next = memory_.upper_bound(address);
  if (next == memory_.begin()) return nullptr;
  const auto& [start, memory] = *std::prev(next);
  if (address - start >= memory.bytes) return nullptr;
  base = start;
  return &memory;
}

std::string TracingDevice::describe(DeviceAddress address) const {
  DeviceAddress base = 0;
  const Memory* memory = find_memory(address, base);
  return memory == nullptr ? "host" : fmt::format("{}+{}", memory->name, address - base);
}

std::string TracingDevice::describe_parameter(const KernelNode& node, const KernelNames& kernel,
                                              std::size_t index) const {
  const CompiledKernel::ParameterLayout& layout = kernel.compiled.parameters[index];
  if (std::uint64_t{layout.offset} + layout.size > node.parameters.size()) return "missing";
  const auto bytes = std::span(node.parameters).subspan(layout.offset, layout.size);
  const bool declared = index < kernel.parameters.size();
  const ParameterKind kind = declared ? kernel.parameters[index].kind : ParameterKind::scalar;
  if (kind == ParameterKind::binding && bytes.size() == sizeof(DeviceAddress)) {
    return describe(read_address(bytes));
  }
  if (kind != ParameterKind::bytes) return hexadecimal(bytes);
  std::string text = "{";
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(DeviceAddress)) {
    const auto word = bytes.subspan(at, std::min(sizeof(DeviceAddress), bytes.size() - at));
    DeviceAddress base = 0;
    const bool is_pointer = word.size() == sizeof(DeviceAddress) && find_memory(read_address(word), base) != nullptr;
    text += (at == 0 ? "" : " ") + (is_pointer ? describe(read_address(word)) : hexadecimal(word));
  }
  return text + "}";
}

std::string TracingDevice::describe_launch(const KernelNode& node) const {
  const auto found = kernels_.find(node.kernel);
  if (found == kernels_.end()) return "kernel unknown";
  std::string text = fmt::format("kernel {} grid {} block {} shared {} (", found->second.symbol,
                                 weft::describe(node.grid), weft::describe(node.block), node.dynamic_shared_bytes);
  if (node.cluster != Dim3{}) text.insert(text.size() - 1, fmt::format("cluster {} ", weft::describe(node.cluster)));
  if (node.cooperative) text.insert(text.size() - 1, "cooperative ");
  for (std::size_t i = 0; i < found->second.compiled.parameters.size(); ++i) {
    text += (i == 0 ? "" : ", ") + describe_parameter(node, found->second, i);
  }
  return text + ")";
}

std::string TracingDevice::describe_range(const FillNode& fill) const {
  return fmt::format("{} bytes {} value {}", describe(fill.destination), fill.bytes, fill.value);
}

std::string TracingDevice::describe_range(const CopyNode& copy) const {
  return fmt::format("{} from {} bytes {}", describe(copy.destination), describe(copy.source), copy.bytes);
}

std::string TracingDevice::describe(const Node& node) const {
  if (const auto* fill = std::get_if<FillNode>(&node)) return "fill " + describe_range(*fill);
  if (const auto* copy = std::get_if<CopyNode>(&node)) return "copy " + describe_range(*copy);
  return describe_launch(std::get<KernelNode>(node));
}

// --- Memory --------------------------------------------------------------------------------------

DeviceStatus TracingDevice::allocate(StreamHandle stream, std::uint64_t bytes, DeviceAddress& address) noexcept {
  const DeviceStatus status = DeviceDecorator::allocate(stream, bytes, address);
  const std::lock_guard lock(mutex_);
  std::string result;
  if (status.ok()) {
    result = fmt::format("m{}", ++allocations_);
    memory_[address] = {result, bytes};
  }
  write(Verb::allocate, fmt::format("{} bytes {}", name(stream), bytes), status, result);
  return status;
}

DeviceStatus TracingDevice::free(StreamHandle stream, DeviceAddress address) noexcept {
  // Named before the call: another thread may be given the address again at once.
  const std::lock_guard lock(mutex_);
  const std::string arguments = fmt::format("{} {}", name(stream), describe(address));
  const DeviceStatus status = DeviceDecorator::free(stream, address);
  if (status.ok()) memory_.erase(address);
  write(Verb::free, arguments, status);
  return status;
}

DeviceStatus TracingDevice::allocate_pinned(std::uint64_t bytes, PinnedMemory& memory) noexcept {
  const DeviceStatus status = DeviceDecorator::allocate_pinned(bytes, memory);
  const std::lock_guard lock(mutex_);
  std::string result;
  if (status.ok()) {
    result = fmt::format("p{}", ++pinned_);
    memory_[memory.device] = {result, bytes};
  }
  write(Verb::allocate_pinned, fmt::format("bytes {}", bytes), status, result);
  return status;
}

DeviceStatus TracingDevice::free_pinned(std::byte* host) noexcept {
  const std::lock_guard lock(mutex_);
  const auto address = reinterpret_cast<DeviceAddress>(host);
  const std::string arguments = describe(address);
  const DeviceStatus status = DeviceDecorator::free_pinned(host);
  if (status.ok()) memory_.erase(address);
  write(Verb::free_pinned, arguments, status);
  return status;
}

DeviceStatus TracingDevice::fill(StreamHandle stream, const FillNode& node) noexcept {
  const DeviceStatus status = DeviceDecorator::fill(stream, node);
  const std::lock_guard lock(mutex_);
  write(Verb::fill, fmt::format("{} {}", name(stream), describe_range(node)), status);
  return status;
}

DeviceStatus TracingDevice::copy(StreamHandle stream, const CopyNode& node) noexcept {
  const DeviceStatus status = DeviceDecorator::copy(stream, node);
  const std::lock_guard lock(mutex_);
  write(Verb::copy, fmt::format("{} {}", name(stream), describe_range(node)), status);
  return status;
}

// --- Code ----------------------------------------------------------------------------------------

DeviceStatus TracingDevice::load(const CodeImage& image, ModuleHandle& module, std::string* log) noexcept {
  const DeviceStatus status = DeviceDecorator::load(image, module, log);
  const std::lock_guard lock(mutex_);
  const std::string result = status.ok() ? fmt::format("module {}", modules_.add(module)) : "";
  write(Verb::load, fmt::format("\"{}\"", image.label), status, result);
  return status;
}

DeviceStatus TracingDevice::unload(ModuleHandle module) noexcept {
  return traced_destroy(Verb::unload, module, [&] { return DeviceDecorator::unload(module); });
}

DeviceStatus TracingDevice::find_kernel(ModuleHandle module, const KernelSpec& spec, KernelHandle& kernel,
                                        CompiledKernel& compiled) noexcept {
  const DeviceStatus status = DeviceDecorator::find_kernel(module, spec, kernel, compiled);
  const std::lock_guard lock(mutex_);
  if (status.ok()) kernels_[kernel] = {spec.symbol, spec.parameters, compiled};
  write(Verb::find_kernel, fmt::format("{} {}", name(module), spec.symbol), status);
  return status;
}

// --- Graphs --------------------------------------------------------------------------------------

DeviceStatus TracingDevice::create_graph(GraphHandle& graph) noexcept {
  const DeviceStatus status = DeviceDecorator::create_graph(graph);
  const std::lock_guard lock(mutex_);
  std::string result;
  if (status.ok()) {
    result = fmt::format("graph {}", graphs_.add(graph));
    graph_nodes_[graph] = {};
  }
  write(Verb::create_graph, {}, status, result);
  return status;
}

std::string TracingDevice::describe(const NodeOrdinals& nodes, std::span<const Edge> edges) {
  std::string text = edges.empty() ? "" : " after";
  for (const Edge& edge : edges) text += fmt::format(" {}{}", nodes.of(edge.from), edge.programmatic ? "p" : "");
  return text;
}

DeviceStatus TracingDevice::add_node(GraphHandle graph, const Node& node, std::span<const Edge> edges,
                                     NodeHandle& handle) noexcept {
  const DeviceStatus status = DeviceDecorator::add_node(graph, node, edges, handle);
  const std::lock_guard lock(mutex_);
  NodeOrdinals& nodes = graph_nodes_[graph];
  std::string arguments = fmt::format("{} {}{}", name(graph), describe(node), describe(nodes, edges));
  write(Verb::add_node, std::move(arguments), status, status.ok() ? fmt::format("node {}", nodes.add(handle)) : "");
  return status;
}

DeviceStatus TracingDevice::set_node(GraphHandle graph, NodeHandle handle, const Node& node) noexcept {
  const DeviceStatus status = DeviceDecorator::set_node(graph, handle, node);
  const std::lock_guard lock(mutex_);
  write(Verb::set_node, fmt::format("{} node {} {}", name(graph), graph_nodes_[graph].of(handle), describe(node)),
        status);
  return status;
}

DeviceStatus TracingDevice::destroy_graph(GraphHandle graph) noexcept {
  return traced_destroy(Verb::destroy_graph, graph, [&] {
    const DeviceStatus status = DeviceDecorator::destroy_graph(graph);
    if (status.ok()) graph_nodes_.erase(graph);
    return status;
  });
}

DeviceStatus TracingDevice::capture(const CaptureRequest& request, StreamHandle stream, GraphHandle& graph) noexcept {
  const DeviceStatus status = DeviceDecorator::capture(request, stream, graph);
  const std::lock_guard lock(mutex_);
  std::string arguments = fmt::format("{} \"{}\"", name(stream), request.name);
  for (const DeviceAddress address : request.addresses) arguments += " " + describe(address);
  std::string result;
  if (status.ok()) {
    result = fmt::format("graph {}", graphs_.add(graph));
    graph_nodes_[graph] = {};
  }
  write(Verb::capture, std::move(arguments), status, result);
  return status;
}

DeviceStatus TracingDevice::add_captured(GraphHandle graph, GraphHandle captured, std::span<const Edge> edges,
                                         std::vector<NodeHandle>& last) noexcept {
  const DeviceStatus status = DeviceDecorator::add_captured(graph, captured, edges, last);
  const std::lock_guard lock(mutex_);
  NodeOrdinals& nodes = graph_nodes_[graph];
  std::string arguments = fmt::format("{} {}{}", name(graph), name(captured), describe(nodes, edges));
  std::string result = status.ok() ? "nodes" : "";
  if (status.ok()) {
    for (const NodeHandle node : last) result += fmt::format(" {}", nodes.add(node));
  }
  write(Verb::add_captured, std::move(arguments), status, result);
  return status;
}

DeviceStatus TracingDevice::instantiate(GraphHandle graph, ExecutableHandle& executable) noexcept {
  const DeviceStatus status = DeviceDecorator::instantiate(graph, executable);
  const std::lock_guard lock(mutex_);
  std::string result;
  if (status.ok()) {
    result = fmt::format("executable {}", executables_.add(executable));
    executable_nodes_[executable] = graph_nodes_[graph];
  }
  write(Verb::instantiate, name(graph), status, result);
  return status;
}

DeviceStatus TracingDevice::set_executable_node(ExecutableHandle executable, NodeHandle handle,
                                                const Node& node) noexcept {
  const DeviceStatus status = DeviceDecorator::set_executable_node(executable, handle, node);
  const std::lock_guard lock(mutex_);
  write(Verb::set_executable_node,
        fmt::format("{} node {} {}", name(executable), executable_nodes_[executable].of(handle), describe(node)),
        status);
  return status;
}

DeviceStatus TracingDevice::upload(ExecutableHandle executable, StreamHandle stream) noexcept {
  return traced_pair(Verb::upload, executable, stream, DeviceDecorator::upload(executable, stream));
}

DeviceStatus TracingDevice::launch(ExecutableHandle executable, StreamHandle stream) noexcept {
  return traced_pair(Verb::launch, executable, stream, DeviceDecorator::launch(executable, stream));
}

DeviceStatus TracingDevice::destroy_executable(ExecutableHandle executable) noexcept {
  return traced_destroy(Verb::destroy_executable, executable, [&] {
    const DeviceStatus status = DeviceDecorator::destroy_executable(executable);
    if (status.ok()) executable_nodes_.erase(executable);
    return status;
  });
}

// --- Streams and events --------------------------------------------------------------------------

DeviceStatus TracingDevice::create_stream(StreamHandle& stream) noexcept {
  const DeviceStatus status = DeviceDecorator::create_stream(stream);
  const std::lock_guard lock(mutex_);
  write(Verb::create_stream, {}, status, status.ok() ? fmt::format("stream {}", streams_.add(stream)) : "");
  return status;
}

DeviceStatus TracingDevice::destroy_stream(StreamHandle stream) noexcept {
  return traced_destroy(Verb::destroy_stream, stream, [&] { return DeviceDecorator::destroy_stream(stream); });
}

DeviceStatus TracingDevice::create_event(EventHandle& event) noexcept {
  const DeviceStatus status = DeviceDecorator::create_event(event);
  const std::lock_guard lock(mutex_);
  write(Verb::create_event, {}, status, status.ok() ? fmt::format("event {}", events_.add(event)) : "");
  return status;
}

DeviceStatus TracingDevice::record_event(EventHandle event, StreamHandle stream) noexcept {
  return traced_pair(Verb::record_event, event, stream, DeviceDecorator::record_event(event, stream));
}

DeviceStatus TracingDevice::wait_event(StreamHandle stream, EventHandle event) noexcept {
  return traced_pair(Verb::wait_event, stream, event, DeviceDecorator::wait_event(stream, event));
}

DeviceStatus TracingDevice::destroy_event(EventHandle event) noexcept {
  return traced_destroy(Verb::destroy_event, event, [&] { return DeviceDecorator::destroy_event(event); });
}

DeviceStatus TracingDevice::adopt_event(EventHandle foreign, EventHandle& event) noexcept {
  const DeviceStatus status = DeviceDecorator::adopt_event(foreign, event);
  const std::lock_guard lock(mutex_);
  write(Verb::adopt_event, name(foreign), status, status.ok() ? fmt::format("event {}", events_.add(event)) : "");
  return status;
}

}  // namespace weft
