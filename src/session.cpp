#include "allocation_domain.h"
#include "buffer.h"
#include "context_state.h"
#include "definition_state.h"
#include "device/registry.h"
#include "error_context.h"
#include "loaded_kernel.h"
#include "unique_id.h"
#include <weft/error.h>
#include <weft/session.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace weft {

struct ModelSession::State {
  struct LoadedImage {
    std::string label;
    std::vector<std::byte> bytes;  // A copy: the caller may free an image and load another one at its address.
    LoadedModule module;
  };
  struct SessionAllocation {
    std::string label;
    std::uint64_t bytes = 0;
    Placement placement = Placement::device;
    std::shared_ptr<Weight> weight;
  };

  std::uint64_t id = next_unique_id();
  Device device;
  std::shared_ptr<AllocationDomain> domain;
  std::vector<SessionAllocation> allocations;
  std::vector<LoadedImage> images;
  std::vector<std::shared_ptr<const LoadedKernel>> kernels;

  explicit State(Device opened)
      : device(opened), domain(std::make_shared<AllocationDomain>(open_device(opened), Allocator{})) {}

  [[nodiscard]] Region add(SessionAllocation allocation) {
    if (allocations.size() >= std::numeric_limits<std::uint32_t>::max()) {
      throw Error(ErrorCode::invalid,
                  fmt::format("The session has {} allocations, which is the most it can have.", allocations.size()));
    }
    const Region region{id, static_cast<std::uint32_t>(allocations.size()), 0, allocation.bytes};
    allocations.push_back(std::move(allocation));
    return region;
  }

  [[nodiscard]] LoadedModule module_of(const CodeImage& image) {
    for (const LoadedImage& loaded : images) {
      // The label counts too: without CUDA every image has the same bytes, none.
      if (loaded.label == image.label && std::ranges::equal(loaded.bytes, image.bytes)) return loaded.module;
    }
    LoadedModule module = load_module(domain->api(), image);
    images.push_back({image.label, {image.bytes.begin(), image.bytes.end()}, module});
    return module;
  }
};

ModelSession::ModelSession(Device device) : state_(std::make_unique<State>(device)) {}
ModelSession::ModelSession(ModelSession&&) noexcept = default;
ModelSession& ModelSession::operator=(ModelSession&&) noexcept = default;
ModelSession::~ModelSession() = default;

ModelSession::State& ModelSession::state() const {
  if (state_ == nullptr) throw Error(ErrorCode::invalid, "The session is moved from or frozen.");
  return *state_;
}

Region ModelSession::allocate(std::uint64_t bytes, AllocationOptions options) {
  State& session = state();
  if (bytes == 0 || bytes > std::numeric_limits<std::int64_t>::max()) {
    throw Error(ErrorCode::invalid, fmt::format("The allocation \"{}\" has {} bytes; an allocation has 1 to {}.",
                                                options.label, bytes, std::numeric_limits<std::int64_t>::max()));
  }
  return session.add(
      {.label = std::move(options.label), .bytes = bytes, .placement = options.placement, .weight = nullptr});
}

TensorRegion ModelSession::allocate(const TensorDesc& desc, AllocationOptions options) {
  return {allocate(desc.bytes(), std::move(options)), desc};
}

void ModelSession::require_dtype(const HostTensor& tensor, DType dtype) {
  if (tensor.desc.dtype() != dtype) {
    throw Error(ErrorCode::invalid, fmt::format("The tensor \"{}\" holds {}; the weight is asked for as {}.",
                                                tensor.label, to_string(tensor.desc.dtype()), to_string(dtype)));
  }
}

TensorRegion ModelSession::weight(const HostTensor& tensor) {
  State& session = state();
  return in_context(
      [&] { return fmt::format("making the weight \"{}\"", tensor.label); },
      [&]() -> TensorRegion {
        if (tensor.desc.is_empty())
          throw Error(ErrorCode::invalid, fmt::format("The tensor {} is empty.", to_string(tensor.desc)));
        if (tensor.bytes.size() != tensor.desc.bytes()) {
          throw Error(ErrorCode::invalid,
                      fmt::format("The tensor {} has {} bytes; {} are given.", to_string(tensor.desc),
                                  tensor.desc.bytes(), tensor.bytes.size()));
        }
        const std::uint64_t bytes = tensor.desc.bytes();
        auto weight = std::make_shared<Weight>(session.domain, bytes, tensor.label);
        copy_now(*session.domain->api(), session.domain->stream(),
                 {weight->buffer.address(), reinterpret_cast<DeviceAddress>(tensor.bytes.data()), bytes},
                 "copy to the device");
        return {
            session.add(
                {.label = tensor.label, .bytes = bytes, .placement = Placement::device, .weight = std::move(weight)}),
            tensor.desc};
      });
}

KernelId ModelSession::load(const KernelSpec& spec) {
  State& session = state();
  session.kernels.push_back(load_kernel(*session.domain->api(), session.module_of(spec.image), spec));
  return {session.id, static_cast<std::uint32_t>(session.kernels.size() - 1)};
}

ModelDefinition ModelSession::freeze(const Context& context) && {
  static_cast<void>(state());
  const std::unique_ptr<State> session = std::move(state_);  // Consumed whatever comes.
  check(session->domain->api()->synchronize_stream(session->domain->stream()), "finish the session's work");
  const std::shared_ptr<ContextState>& home = ContextAccess::state(context);
  if (home->domain()->api() != session->domain->api()) {
    throw Error(ErrorCode::invalid, fmt::format("The session is of device {} and the context of {}.",
                                                to_string(session->device), to_string(home->device())));
  }
  DefinitionState definition{session->id, context, {}, std::move(session->kernels)};
  definition.allocations.reserve(session->allocations.size());
  for (State::SessionAllocation& allocation : session->allocations) {
    if (allocation.weight != nullptr) allocation.weight->adopt(home->domain());
    definition.allocations.push_back(
        {std::move(allocation.label), allocation.bytes, allocation.placement, std::move(allocation.weight)});
  }
  return ModelDefinition(std::make_shared<const DefinitionState>(std::move(definition)));
}

}  // namespace weft
