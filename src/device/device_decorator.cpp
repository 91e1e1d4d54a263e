#include "device/device_decorator.h"

namespace weft {

std::string_view to_string(Verb verb) noexcept {
  switch (verb) {
    case Verb::memory_info:
      return "memory_info";
    case Verb::describe_address:
      return "describe_address";
    case Verb::allocate:
      return "allocate";
    case Verb::free:
      return "free";
    case Verb::trim:
      return "trim";
    case Verb::allocate_pinned:
      return "allocate_pinned";
    case Verb::free_pinned:
      return "free_pinned";
    case Verb::fill:
      return "fill";
    case Verb::copy:
      return "copy";
    case Verb::load:
      return "load";
    case Verb::unload:
      return "unload";
    case Verb::find_kernel:
      return "find_kernel";
    case Verb::find_global:
      return "find_global";
    case Verb::raise_dynamic_shared:
      return "raise_dynamic_shared";
    case Verb::max_resident_blocks:
      return "max_resident_blocks";
    case Verb::create_graph:
      return "create_graph";
    case Verb::add_node:
      return "add_node";
    case Verb::set_node:
      return "set_node";
    case Verb::read_back:
      return "read_back";
    case Verb::destroy_graph:
      return "destroy_graph";
    case Verb::capture:
      return "capture";
    case Verb::add_captured:
      return "add_captured";
    case Verb::instantiate:
      return "instantiate";
    case Verb::set_executable_node:
      return "set_executable_node";
    case Verb::upload:
      return "upload";
    case Verb::launch:
      return "launch";
    case Verb::destroy_executable:
      return "destroy_executable";
    case Verb::create_stream:
      return "create_stream";
    case Verb::query_stream:
      return "query_stream";
    case Verb::synchronize_stream:
      return "synchronize_stream";
    case Verb::destroy_stream:
      return "destroy_stream";
    case Verb::create_event:
      return "create_event";
    case Verb::record_event:
      return "record_event";
    case Verb::wait_event:
      return "wait_event";
    case Verb::synchronize_event:
      return "synchronize_event";
    case Verb::destroy_event:
      return "destroy_event";
    case Verb::check_foreign_stream:
      return "check_foreign_stream";
    case Verb::adopt_event:
      return "adopt_event";
  }
  return "unknown";
}

DeviceStatus DeviceDecorator::memory_info(MemoryInfo& info) noexcept {
  return call(Verb::memory_info, [&] { return inner_->memory_info(info); });
}

DeviceStatus DeviceDecorator::describe_address(DeviceAddress address, AddressInfo& info) noexcept {
  return call(Verb::describe_address, [&] { return inner_->describe_address(address, info); });
}

DeviceStatus DeviceDecorator::allocate(StreamHandle stream, std::uint64_t bytes, DeviceAddress& address) noexcept {
  return call(Verb::allocate, [&] { return inner_->allocate(stream, bytes, address); });
}

DeviceStatus DeviceDecorator::free(StreamHandle stream, DeviceAddress address) noexcept {
  return call(Verb::free, [&] { return inner_->free(stream, address); });
}

DeviceStatus DeviceDecorator::trim(std::uint64_t keep_bytes) noexcept {
  return call(Verb::trim, [&] { return inner_->trim(keep_bytes); });
}

DeviceStatus DeviceDecorator::allocate_pinned(std::uint64_t bytes, PinnedMemory& memory) noexcept {
  return call(Verb::allocate_pinned, [&] { return inner_->allocate_pinned(bytes, memory); });
}

DeviceStatus DeviceDecorator::free_pinned(std::byte* host) noexcept {
  return call(Verb::free_pinned, [&] { return inner_->free_pinned(host); });
}

DeviceStatus DeviceDecorator::fill(StreamHandle stream, const FillNode& node) noexcept {
  return call(Verb::fill, [&] { return inner_->fill(stream, node); });
}

DeviceStatus DeviceDecorator::copy(StreamHandle stream, const CopyNode& node) noexcept {
  return call(Verb::copy, [&] { return inner_->copy(stream, node); });
}

DeviceStatus DeviceDecorator::load(const CodeImage& image, ModuleHandle& module, std::string* log) noexcept {
  return call(Verb::load, [&] { return inner_->load(image, module, log); });
}

DeviceStatus DeviceDecorator::unload(ModuleHandle module) noexcept {
  return call(Verb::unload, [&] { return inner_->unload(module); });
}

DeviceStatus DeviceDecorator::find_kernel(ModuleHandle module, const KernelSpec& spec, KernelHandle& kernel,
                                          CompiledKernel& compiled) noexcept {
  return call(Verb::find_kernel, [&] { return inner_->find_kernel(module, spec, kernel, compiled); });
}

DeviceStatus DeviceDecorator::find_global(ModuleHandle module, const std::string& name,
                                          GlobalVariable& variable) noexcept {
  return call(Verb::find_global, [&] { return inner_->find_global(module, name, variable); });
}

DeviceStatus DeviceDecorator::raise_dynamic_shared(KernelHandle kernel, std::uint32_t bytes) noexcept {
  return call(Verb::raise_dynamic_shared, [&] { return inner_->raise_dynamic_shared(kernel, bytes); });
}

DeviceStatus DeviceDecorator::max_resident_blocks(const KernelNode& launch, std::uint64_t& blocks) noexcept {
  return call(Verb::max_resident_blocks, [&] { return inner_->max_resident_blocks(launch, blocks); });
}

DeviceStatus DeviceDecorator::create_graph(GraphHandle& graph) noexcept {
  return call(Verb::create_graph, [&] { return inner_->create_graph(graph); });
}

DeviceStatus DeviceDecorator::add_node(GraphHandle graph, const Node& node, std::span<const Edge> edges,
                                       NodeHandle& handle) noexcept {
  return call(Verb::add_node, [&] { return inner_->add_node(graph, node, edges, handle); });
}

DeviceStatus DeviceDecorator::set_node(GraphHandle graph, NodeHandle handle, const Node& node) noexcept {
  return call(Verb::set_node, [&] { return inner_->set_node(graph, handle, node); });
}

DeviceStatus DeviceDecorator::read_back(GraphHandle graph, GraphReadBack& description) noexcept {
  return call(Verb::read_back, [&] { return inner_->read_back(graph, description); });
}

DeviceStatus DeviceDecorator::destroy_graph(GraphHandle graph) noexcept {
  return call(Verb::destroy_graph, [&] { return inner_->destroy_graph(graph); });
}

DeviceStatus DeviceDecorator::capture(const CaptureRequest& request, StreamHandle stream, GraphHandle& graph) noexcept {
  return call(Verb::capture, [&] { return inner_->capture(request, stream, graph); });
}

DeviceStatus DeviceDecorator::add_captured(GraphHandle graph, GraphHandle captured, std::span<const Edge> edges,
                                           std::vector<NodeHandle>& last) noexcept {
  return call(Verb::add_captured, [&] { return inner_->add_captured(graph, captured, edges, last); });
}

DeviceStatus DeviceDecorator::instantiate(GraphHandle graph, ExecutableHandle& executable) noexcept {
  return call(Verb::instantiate, [&] { return inner_->instantiate(graph, executable); });
}

DeviceStatus DeviceDecorator::set_executable_node(ExecutableHandle executable, NodeHandle handle,
                                                  const Node& node) noexcept {
  return call(Verb::set_executable_node, [&] { return inner_->set_executable_node(executable, handle, node); });
}

DeviceStatus DeviceDecorator::upload(ExecutableHandle executable, StreamHandle stream) noexcept {
  return call(Verb::upload, [&] { return inner_->upload(executable, stream); });
}

DeviceStatus DeviceDecorator::launch(ExecutableHandle executable, StreamHandle stream) noexcept {
  return call(Verb::launch, [&] { return inner_->launch(executable, stream); });
}

DeviceStatus DeviceDecorator::destroy_executable(ExecutableHandle executable) noexcept {
  return call(Verb::destroy_executable, [&] { return inner_->destroy_executable(executable); });
}

DeviceStatus DeviceDecorator::create_stream(StreamHandle& stream) noexcept {
  return call(Verb::create_stream, [&] { return inner_->create_stream(stream); });
}

DeviceStatus DeviceDecorator::query_stream(StreamHandle stream) noexcept {
  return call(Verb::query_stream, [&] { return inner_->query_stream(stream); });
}

DeviceStatus DeviceDecorator::synchronize_stream(StreamHandle stream) noexcept {
  return call(Verb::synchronize_stream, [&] { return inner_->synchronize_stream(stream); });
}

DeviceStatus DeviceDecorator::destroy_stream(StreamHandle stream) noexcept {
  return call(Verb::destroy_stream, [&] { return inner_->destroy_stream(stream); });
}

DeviceStatus DeviceDecorator::create_event(EventHandle& event) noexcept {
  return call(Verb::create_event, [&] { return inner_->create_event(event); });
}

DeviceStatus DeviceDecorator::record_event(EventHandle event, StreamHandle stream) noexcept {
  return call(Verb::record_event, [&] { return inner_->record_event(event, stream); });
}

DeviceStatus DeviceDecorator::wait_event(StreamHandle stream, EventHandle event) noexcept {
  return call(Verb::wait_event, [&] { return inner_->wait_event(stream, event); });
}

DeviceStatus DeviceDecorator::synchronize_event(EventHandle event) noexcept {
  return call(Verb::synchronize_event, [&] { return inner_->synchronize_event(event); });
}

DeviceStatus DeviceDecorator::destroy_event(EventHandle event) noexcept {
  return call(Verb::destroy_event, [&] { return inner_->destroy_event(event); });
}

DeviceStatus DeviceDecorator::check_foreign_stream(StreamHandle stream) noexcept {
  return call(Verb::check_foreign_stream, [&] { return inner_->check_foreign_stream(stream); });
}

DeviceStatus DeviceDecorator::adopt_event(EventHandle foreign, EventHandle& event) noexcept {
  return call(Verb::adopt_event, [&] { return inner_->adopt_event(foreign, event); });
}

}  // namespace weft
