// The verbs of HostDevice for code, graphs and executables.

#include "device/host/host_device.h"
#include "device/host/host_verb.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace weft {

// --- Code ----------------------------------------------------------------------------------------

DeviceStatus HostDevice::load(const CodeImage&, ModuleHandle& module, std::string*) noexcept {
  return verb([&]() -> DeviceStatus {
    module = modules_.insert({});
    return {};
  });
}

DeviceStatus HostDevice::unload(ModuleHandle module) noexcept {
  return verb([&]() -> DeviceStatus {
    const Module* found = modules_.find(module);
    if (found == nullptr) return modules_.missing(module);
    const bool running = executor_.any_unfinished([&](const Action& action) {
      const auto* bound = std::get_if<BoundNodeRef>(&action);
      return bound != nullptr && (*bound)->kernel && (*bound)->kernel->module == module;
    });
    if (running) return misuse("a module is unloaded while queued work runs its kernels");
    for (const KernelHandle kernel : found->kernels) {
      (*kernels_.find(kernel))->unloaded = true;
      (void)kernels_.erase(kernel);
    }
    return modules_.erase(module);
  });
}

DeviceStatus HostDevice::find_kernel(ModuleHandle module, const KernelSpec& spec, KernelHandle& kernel,
                                     CompiledKernel& compiled) noexcept {
  return verb([&]() -> DeviceStatus {
    Module* found = modules_.find(module);
    if (found == nullptr) return modules_.missing(module);
    if (spec.symbol.empty()) return refused("a module has no kernel with an empty symbol");
    CompiledKernel layout = host_layout(spec);
    layout.binary_version = limits_.compute_capability;
    if (layout.parameter_bytes() > limits_.max_parameter_bytes) {
      return refused("a kernel's parameter block passes the device's limit");
    }
    const auto loaded = std::make_shared<LoadedHostKernel>(LoadedHostKernel{.module = module,
                                                                            .symbol = spec.symbol,
                                                                            .parameters = spec.parameters,
                                                                            .run = spec.host ? spec.host->run : nullptr,
                                                                            .compiled = layout});
    const KernelHandle handle = kernels_.insert(loaded);
    found->kernels.push_back(handle);
    kernel = handle;
    compiled = std::move(layout);
    return {};
  });
}

DeviceStatus HostDevice::find_global(ModuleHandle module, const std::string&, GlobalVariable& variable) noexcept {
  return verb([&]() -> DeviceStatus {
    if (modules_.find(module) == nullptr) return modules_.missing(module);
    variable = {};
    return {};
  });
}

DeviceStatus HostDevice::raise_dynamic_shared(KernelHandle kernel, std::uint32_t bytes) noexcept {
  return verb([&]() -> DeviceStatus {
    const std::shared_ptr<LoadedHostKernel>* found = kernels_.find(kernel);
    if (found == nullptr) return kernels_.missing(kernel);
    LoadedHostKernel& loaded = **found;
    if (std::uint64_t{bytes} + loaded.compiled.static_shared_bytes > limits_.max_shared_bytes) {
      return refused("static and dynamic shared memory together pass the device's limit");
    }
    loaded.raised_dynamic_shared_bytes = std::max(loaded.raised_dynamic_shared_bytes, bytes);
    return {};
  });
}

DeviceStatus HostDevice::max_resident_blocks(const KernelNode& launch, std::uint64_t& blocks) noexcept {
  return verb([&]() -> DeviceStatus {
    const std::shared_ptr<LoadedHostKernel>* found = kernels_.find(launch.kernel);
    if (found == nullptr) return kernels_.missing(launch.kernel);
    blocks = weft::max_resident_blocks(launch, **found, limits_);
    return {};
  });
}

// --- Graphs --------------------------------------------------------------------------------------

DeviceStatus HostDevice::check_range(DeviceAddress address, std::uint64_t bytes, bool pageable) {
  if (memory_.takes_work(address, bytes)) return {};
  if (memory_.holds(address, bytes)) return misuse("memory is used whose free is already queued");
  if (pageable && address != 0 && !memory_.touches(address, bytes)) return {};
  return refused("a node's range leaves its allocation");
}

DeviceStatus HostDevice::check_node(const Node& node, bool pageable, BoundNodeRef& bound) {
  BoundNode checked{.node = node};
  DeviceStatus status;
  if (const auto* fill = std::get_if<FillNode>(&node)) {
    if (fill->bytes == 0) return refused("a fill of zero bytes");
    status = check_range(fill->destination, fill->bytes, false);
  } else if (const auto* copy = std::get_if<CopyNode>(&node)) {
    if (copy->bytes == 0) return refused("a copy of zero bytes");
    status = check_range(copy->destination, copy->bytes, pageable);
    if (status.ok()) status = check_range(copy->source, copy->bytes, pageable);
    checked.pageable_destination = !memory_.touches(copy->destination, copy->bytes);
    checked.pageable_source = !memory_.touches(copy->source, copy->bytes);
  } else {
    const auto& launch = std::get<KernelNode>(node);
    const std::shared_ptr<LoadedHostKernel>* found = kernels_.find(launch.kernel);
    if (found == nullptr) return kernels_.missing(launch.kernel);
    checked.kernel = *found;
    status = check_launch(launch, *checked.kernel, limits_);
  }
  if (status.ok()) bound = std::make_shared<const BoundNode>(std::move(checked));
  return status;
}

DeviceStatus HostDevice::create_graph(GraphHandle& graph) noexcept {
  return verb([&]() -> DeviceStatus {
    graph = graphs_.insert({});
    return {};
  });
}

DeviceStatus HostDevice::add_node(GraphHandle graph, const Node& node, std::span<const Edge> edges,
                                  NodeHandle& handle) noexcept {
  return verb([&]() -> DeviceStatus {
    HostGraph* found = graphs_.find(graph);
    if (found == nullptr) return graphs_.missing(graph);
    BoundNodeRef bound;
    if (const DeviceStatus status = check_node(node, false, bound); !status.ok()) return status;
    if (const DeviceStatus status = found->check_edges(*bound, edges); !status.ok()) return status;
    const auto added = static_cast<NodeHandle>(last_node_ + 1);
    found->add(added, std::move(bound), edges);
    ++last_node_;
    handle = added;
    return {};
  });
}

DeviceStatus HostDevice::set_node(GraphHandle graph, NodeHandle handle, const Node& node) noexcept {
  return verb([&]() -> DeviceStatus {
    HostGraph* found = graphs_.find(graph);
    if (found == nullptr) return graphs_.missing(graph);
    BoundNodeRef bound;
    if (const DeviceStatus status = check_node(node, false, bound); !status.ok()) return status;
    return found->set(handle, std::move(bound));
  });
}

DeviceStatus HostDevice::read_back(GraphHandle graph, GraphReadBack& description) noexcept {
  return verb([&]() -> DeviceStatus {
    const HostGraph* found = graphs_.find(graph);
    if (found == nullptr) return graphs_.missing(graph);
    description = found->read_back();
    return {};
  });
}

DeviceStatus HostDevice::destroy_graph(GraphHandle graph) noexcept {
  return verb([&] { return graphs_.erase(graph); });
}

// A launch of a kernel that no module has: its parameters are what the call works on.
DeviceStatus HostDevice::capture(const CaptureRequest& request, StreamHandle stream, GraphHandle& graph) noexcept {
  return verb([&]() -> DeviceStatus {
    if (streams_.find(stream) == nullptr) return streams_.missing(stream);
    LoadedHostKernel call;
    call.symbol = request.name;
    KernelNode launch;
    launch.parameters.resize(request.addresses.size() * sizeof(DeviceAddress));
    for (std::uint32_t i = 0; i < request.addresses.size(); ++i) {
      call.parameters.push_back({.kind = ParameterKind::binding, .size = sizeof(DeviceAddress)});
      call.compiled.parameters.push_back(
          {i * static_cast<std::uint32_t>(sizeof(DeviceAddress)), sizeof(DeviceAddress)});
      std::memcpy(&launch.parameters[call.compiled.parameters.back().offset], &request.addresses[i],
                  sizeof(DeviceAddress));
    }
    if (request.host) call.run = [host = request.host](const HostLaunch&) { host(); };
    HostGraph captured;
    captured.add(
        static_cast<NodeHandle>(++last_node_),
        std::make_shared<const BoundNode>(BoundNode{launch, std::make_shared<const LoadedHostKernel>(std::move(call))}),
        {});
    graph = graphs_.insert(std::move(captured));
    return {};
  });
}

DeviceStatus HostDevice::add_captured(GraphHandle graph, GraphHandle captured, std::span<const Edge> edges,
                                      std::vector<NodeHandle>& last) noexcept {
  return verb([&]() -> DeviceStatus {
    HostGraph* found = graphs_.find(graph);
    if (found == nullptr) return graphs_.missing(graph);
    const HostGraph* source = graphs_.find(captured);
    if (source == nullptr) return graphs_.missing(captured);
    const std::shared_ptr<const BoundNode>& node = source->entries().front().bound;
    if (const DeviceStatus status = found->check_edges(*node, edges); !status.ok()) return status;
    found->add(static_cast<NodeHandle>(++last_node_), node, edges);
    last.assign(1, static_cast<NodeHandle>(last_node_));
    return {};
  });
}

// --- Executables ---------------------------------------------------------------------------------

DeviceStatus HostDevice::instantiate(GraphHandle graph, ExecutableHandle& executable) noexcept {
  return verb([&]() -> DeviceStatus {
    const HostGraph* found = graphs_.find(graph);
    if (found == nullptr) return graphs_.missing(graph);
    executable = executables_.insert({*found, nullptr});
    return {};
  });
}

DeviceStatus HostDevice::set_executable_node(ExecutableHandle executable, NodeHandle handle,
                                             const Node& node) noexcept {
  return verb([&]() -> DeviceStatus {
    Executable* found = executables_.find(executable);
    if (found == nullptr) return executables_.missing(executable);
    // The node that completes a run is seen to have run before it has finished; what runs keeps its own parameters.
    if (!executor_.is_finishing(found->last_run) && !executor_.is_finished(found->last_run)) {
      return misuse("a node is set in an executable that is running");
    }
    BoundNodeRef bound;
    if (const DeviceStatus status = check_node(node, false, bound); !status.ok()) return status;
    return found->graph.set(handle, std::move(bound));
  });
}

DeviceStatus HostDevice::upload(ExecutableHandle executable, StreamHandle stream) noexcept {
  return verb([&]() -> DeviceStatus {
    if (executables_.find(executable) == nullptr) return executables_.missing(executable);
    if (streams_.find(stream) == nullptr) return streams_.missing(stream);
    return {};
  });
}

DeviceStatus HostDevice::check_launchable(const BoundNode& bound) {
  const auto takes_work = [&](DeviceAddress address) { return memory_.takes_work(address, 1); };
  constexpr const char* kNoMemory = "an executable is launched that uses memory that is not allocated or already freed";
  if (const auto* fill = std::get_if<FillNode>(&bound.node)) {
    return takes_work(fill->destination) ? DeviceStatus{} : misuse(kNoMemory);
  }
  if (const auto* copy = std::get_if<CopyNode>(&bound.node)) {
    return takes_work(copy->destination) && takes_work(copy->source) ? DeviceStatus{} : misuse(kNoMemory);
  }
  if (bound.kernel->unloaded) {
    return misuse("an executable is launched that runs a kernel whose module is unloaded");
  }
  if (!bound.kernel->run) return {StatusCode::unsupported, 0, "a kernel has no host reference"};
  const auto& launch = std::get<KernelNode>(bound.node);
  return std::ranges::all_of(bound_addresses(launch, *bound.kernel), takes_work) ? DeviceStatus{} : misuse(kNoMemory);
}

DeviceStatus HostDevice::launch(ExecutableHandle executable, StreamHandle stream) noexcept {
  return verb([&]() -> DeviceStatus {
    Executable* found = executables_.find(executable);
    if (found == nullptr) return executables_.missing(executable);
    Stream* target = streams_.find(stream);
    if (target == nullptr) return streams_.missing(stream);
    const std::vector<HostGraph::Entry>& entries = found->graph.entries();
    for (const HostGraph::Entry& entry : entries) {
      if (const DeviceStatus status = check_launchable(*entry.bound); !status.ok()) return status;
    }

    std::vector<HostExecutor::Submission> run;
    run.reserve(entries.size() + 2);
    run.push_back({std::make_shared<HostOperation>(Action{}), {target->last, found->last_run}});
    const HostOperationRef begin = run.front().operation;
    std::vector<HostOperationRef> all;
    for (const HostGraph::Entry& entry : entries) {
      std::vector<HostOperationRef> after;
      for (const std::size_t position : entry.after) after.push_back(run[position + 1].operation);
      if (after.empty()) after.push_back(begin);
      run.push_back({std::make_shared<HostOperation>(entry.bound), std::move(after)});
      all.push_back(run.back().operation);
    }
    if (all.empty()) all.push_back(begin);
    run.push_back({std::make_shared<HostOperation>(Action{}), std::move(all)});
    executor_.submit(run);
    found->last_run = run.back().operation;
    target->last = run.back().operation;
    return {};
  });
}

DeviceStatus HostDevice::destroy_executable(ExecutableHandle executable) noexcept {
  return verb([&] { return executables_.erase(executable); });
}

}  // namespace weft
