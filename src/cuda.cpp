#include "device/cuda/native_handle.h"
#include "device_tensor_access.h"
#include "error_context.h"
#include "foreign_stream.h"
#include "prepared_access.h"
#include "refusal.h"
#include "slot_pool.h"
#include "submission.h"
#include "tracked_memory.h"
#include <weft/cuda.h>
#include <weft/device.h>

#include <spdlog/fmt/fmt.h>

#include <string>
#include <utility>

namespace weft::detail {

namespace {

std::string describe(const Parameter& parameter, std::size_t index) {
  return parameter.name.empty() ? fmt::format("parameter {}", index)
                                : fmt::format("parameter {} (\"{}\")", index, parameter.name);
}

std::string_view kind_of(const DeclaredParameter& declared) {
  if (declared.kind == ParameterKind::binding) return declared.points_to_const ? "a pointer to const" : "a pointer";
  return declared.kind == ParameterKind::bytes ? "a struct" : declared.integral ? "an integer" : "a scalar";
}

bool agrees(ParameterKind kind, const DeclaredParameter& declared) {
  return kind == declared.kind || (kind == ParameterKind::index && declared.integral);
}

void require_agreement(const Parameter& parameter, const DeclaredParameter& declared, std::size_t index) {
  if (!agrees(parameter.kind, declared)) {
    refuse(fmt::format("The spec makes {} of kind {}; the function declares {} there.", describe(parameter, index),
                       to_string(parameter.kind), kind_of(declared)));
  }
  if (parameter.size != 0 && parameter.size != declared.size) {
    refuse(fmt::format("The spec gives {} {} bytes; the function declares {}.", describe(parameter, index),
                       parameter.size, declared.size));
  }
  if (declared.points_to_const && writes(parameter.access)) {
    refuse(fmt::format("The spec gives {} the access {}; the function declares a pointer to const there.",
                       describe(parameter, index), to_string(parameter.access)));
  }
}

/// What the declaration says and the parameter leaves open.
void fill_in(Parameter& parameter, const DeclaredParameter& declared) {
  parameter.size = declared.size;
  const Parameter unsaid;
  if (parameter.element_size != unsaid.element_size || parameter.alignment != unsaid.alignment) return;
  parameter.element_size = declared.element_size;
  // An element's own alignment; by default it would be its size.
  if (declared.element_alignment != declared.element_size) parameter.alignment = declared.element_alignment;
}

Parameter derived(const DeclaredParameter& declared) {
  Parameter parameter{.kind = declared.kind};
  if (declared.kind == ParameterKind::binding && !declared.points_to_const) parameter.access = Access::read_write;
  fill_in(parameter, declared);
  return parameter;
}

}  // namespace

KernelSpec complete_spec(KernelSpec spec, NativeKernel native, const std::vector<DeclaredParameter>& declared) {
  return in_context([&] { return fmt::format("describing the kernel function \"{}\"", spec.name()); },
                    [&] {
                      if (native.function == nullptr) refuse("The function is null.");
                      if (spec.name().empty()) refuse("The spec has neither a label nor a symbol.");
                      if (!spec.image.bytes.empty() || spec.image.native.function != nullptr)
                        refuse(fmt::format("The spec has the image \"{}\" already.", spec.image.label));
                      if (spec.parameters.empty()) {
                        for (const DeclaredParameter& parameter : declared)
                          spec.parameters.push_back(derived(parameter));
                      }
                      if (spec.parameters.size() != declared.size()) {
                        refuse(fmt::format("The spec has {} parameters; the function declares {}.",
                                           spec.parameters.size(), declared.size()));
                      }
                      for (std::size_t i = 0; i < declared.size(); ++i) {
                        require_agreement(spec.parameters[i], declared[i], i);
                        fill_in(spec.parameters[i], declared[i]);
                      }
                      if (spec.host && spec.host->parameter_sizes.empty()) {
                        for (const DeclaredParameter& parameter : declared)
                          spec.host->parameter_sizes.push_back(parameter.size);
                      }
                      spec.image = {.bytes = {}, .label = "the program", .native = native};
                      return spec;
                    });
}

}  // namespace weft::detail

namespace weft::cuda {

namespace {

ContextState& require_cuda(ContextState& context) {
  if (context.device().kind != Device::Kind::cuda)
    refuse("The context is one of the host device, which has no CUDA streams.");
  return context;
}

ContextState& state_of(const Context& context) { return require_cuda(*ContextAccess::state(context)); }

StreamHandle handle_of(cudaStream_t stream) {
  return to_handle<StreamHandle>(stream == nullptr ? cudaStreamLegacy : stream);
}

UniqueEvent adopt(const ContextState& context, cudaEvent_t event) {
  if (event == nullptr) refuse("The event is null.");
  return foreign::adopt(context, to_handle<EventHandle>(event));
}

}  // namespace

void wait_for(ModelSlot& slot, cudaStream_t stream) {
  foreign::wait_for(slot, foreign::record(require_cuda(foreign::context_of(slot)), handle_of(stream)));
}

void wait_for(ModelSlot& slot, cudaEvent_t event) {
  foreign::wait_for(slot, adopt(require_cuda(foreign::context_of(slot)), event));
}

void wait_for(cudaStream_t stream, const Completion& work) {
  const Submission* submission = CompletionAccess::submission(work);
  if (submission == nullptr) return;
  if (const auto home = submission->home().lock()) static_cast<void>(require_cuda(*home));
  foreign::wait_for(handle_of(stream), work);
}

Completion completion(const Context& context, cudaStream_t stream) {
  ContextState& state = state_of(context);
  return foreign::completion(state, foreign::record(state, handle_of(stream)));
}

Completion completion(const Context& context, cudaEvent_t event) {
  ContextState& state = state_of(context);
  return foreign::completion(state, adopt(state, event));
}

void release(Inference&& run, cudaStream_t stream) {
  if (const auto& pool = PreparedAccess::pool(run)) static_cast<void>(state_of(pool->context()));
  foreign::release(std::move(run), handle_of(stream));
}

void release(DeviceTensor&& tensor, cudaStream_t stream, Access access) {
  if (const auto& memory = DeviceTensorAccess::memory(tensor)) static_cast<void>(require_cuda(memory->home()));
  foreign::release(tensor, handle_of(stream), access);
}

void* address(const DeviceTensor& tensor) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(foreign::address(tensor)));
}

Completion scoped(const Context& context, cudaStream_t stream, const std::vector<Use>& uses,
                  const std::function<void(cudaStream_t)>& callback, ScopeOptions options) {
  if (!callback) refuse("The callback of a scope is empty.");
  std::vector<foreign::Use> tensors;
  tensors.reserve(uses.size());
  for (const Use& use : uses) tensors.push_back({use.tensor, use.access});
  return foreign::scoped(state_of(context), handle_of(stream), tensors, options.after, options.deadline,
                         [&] { callback(stream); });
}

ModelGraph graph(const PreparedModel& model, const ModelSlot& slot, std::size_t form) {
  static_cast<void>(state_of(model.context()));
  foreign::Graph made = foreign::graph(model, slot, form);
  return {native<cudaGraph_t>(made.graph.release()), std::move(made.inputs), std::move(made.outputs)};
}

}  // namespace weft::cuda
