#include "error_context.h"
#include "refusal.h"
#include "session_state.h"
#include <weft/error.h>
#include <weft/session.h>

#include <spdlog/fmt/fmt.h>

#include <iterator>
#include <utility>

namespace weft {

namespace {

void require_not_empty(const TensorDesc& desc) {
  if (desc.is_empty()) refuse(fmt::format("The tensor {} is empty.", to_string(desc)));
}

template <class Body>
decltype(auto) making_weight(const std::string& label, Body&& body) {
  return in_context([&] { return fmt::format("making the weight \"{}\"", label); }, std::forward<Body>(body));
}

}  // namespace

ModelSession::ModelSession(Device device, SessionOptions options)
    : state_(std::make_shared<SessionState>(device, std::move(options))) {}

ModelSession::ModelSession(ModelSession&& other) noexcept = default;

ModelSession& ModelSession::operator=(ModelSession&& other) noexcept {
  if (this != &other) SessionState::release(std::exchange(state_, std::move(other.state_)));
  return *this;
}

ModelSession::~ModelSession() { SessionState::release(std::move(state_)); }

SessionState& ModelSession::require_usable() const {
  if (state_ == nullptr) refuse("The session is moved from or frozen.");
  state_->require_healthy();
  return *state_;
}

Region ModelSession::allocate(std::uint64_t bytes, AllocationOptions options) {
  return require_usable().add_scratch(std::move(options.label), bytes, options.placement);
}

TensorRegion ModelSession::allocate(const TensorDesc& desc, AllocationOptions options) {
  return {allocate(desc.bytes(), std::move(options)), desc};
}

Region ModelSession::state(std::uint64_t bytes, AllocationOptions options) {
  SessionState& session = require_usable();
  const std::string label = options.label;
  return in_context([&] { return fmt::format("making the state \"{}\"", label); },
                    [&] { return session.add_state(std::move(options.label), bytes, options.placement); });
}

TensorRegion ModelSession::state(const TensorDesc& desc, AllocationOptions options) {
  return {state(desc.bytes(), std::move(options)), desc};
}

LateScalarId ModelSession::add_late(std::string label, std::size_t bytes, std::optional<Scalar> value) {
  return require_usable().add_late(std::move(label), bytes, std::move(value));
}

Region ModelSession::late_region(std::uint64_t bytes, LateRegionOptions options) {
  return require_usable().add_late_region(std::move(options.label), bytes, {});
}

TensorRegion ModelSession::late_region(const TensorDesc& desc, LateRegionOptions options) {
  return {require_usable().add_late_region(std::move(options.label), desc.bytes(), desc), desc};
}

void ModelSession::require_dtype(const HostTensor& tensor, DType dtype) {
  if (tensor.desc.dtype() != dtype) {
    refuse(fmt::format("The tensor \"{}\" holds {}; the weight is asked for as {}.", tensor.label,
                       to_string(tensor.desc.dtype()), to_string(dtype)));
  }
}

TensorRegion ModelSession::weight(const HostTensor& tensor) {
  SessionState& session = require_usable();
  return making_weight(tensor.label, [&]() -> TensorRegion {
    require_not_empty(tensor.desc);
    if (tensor.bytes.size() != tensor.desc.bytes()) {
      refuse(fmt::format("The tensor {} has {} bytes; {} are given.", to_string(tensor.desc), tensor.desc.bytes(),
                         tensor.bytes.size()));
    }
    return {session.add_weight(tensor.label, tensor.bytes), tensor.desc};
  });
}

TensorRegion ModelSession::weight(Trusted, AdoptedMemory memory, const TensorDesc& desc, std::string label) {
  SessionState& session = require_usable();
  return making_weight(label, [&]() -> TensorRegion {
    require_not_empty(desc);
    return {session.add_weight(label, std::move(memory), desc.bytes()), desc};
  });
}

KernelId ModelSession::load(const KernelSpec& spec) { return require_usable().load(spec); }

void ModelSession::upload(const Region& region, std::span<const std::byte> bytes) {
  SessionState& session = require_usable();
  const Allocation& allocation = session.require_bytes(region, "upload");
  if (bytes.size() != region.bytes) {
    refuse(fmt::format("The region of allocation \"{}\" has {} bytes; {} are given.", allocation.label, region.bytes,
                       bytes.size()));
  }
  in_context([&] { return fmt::format("uploading to allocation \"{}\"", allocation.label); },
             [&] { session.upload(region, bytes); });
}

void ModelSession::read(const Region& region, std::span<std::byte> bytes) {
  SessionState& session = require_usable();
  const Allocation& allocation = session.require_bytes(region, "read");
  if (bytes.size() != region.bytes) {
    refuse(fmt::format("The region of allocation \"{}\" has {} bytes; there is room for {}.", allocation.label,
                       region.bytes, bytes.size()));
  }
  in_context([&] { return fmt::format("reading allocation \"{}\"", allocation.label); },
             [&] {
               session.read({&region, 1}, {&bytes, 1});
             });
}

std::vector<std::vector<std::byte>> ModelSession::read_many(const std::vector<Region>& regions) {
  SessionState& session = require_usable();
  for (std::size_t i = 0; i < regions.size(); ++i) {
    in_context([&] { return fmt::format("reading regions[{}]", i); },
               [&] { static_cast<void>(session.require_bytes(regions[i], "read")); });
  }
  std::vector<std::vector<std::byte>> bytes;
  bytes.reserve(regions.size());
  for (const Region& region : regions) bytes.emplace_back(region.bytes);
  if (regions.empty()) return bytes;
  const std::vector<std::span<std::byte>> destinations(bytes.begin(), bytes.end());
  in_context([&] { return fmt::format("reading {} regions", regions.size()); },
             [&] { session.read(regions, destinations); });
  return bytes;
}

void ModelSession::record(const std::string& key, const std::vector<Command>& commands) {
  SessionState& session = require_usable();
  in_context([&] { return fmt::format("recording the graph \"{}\"", key); }, [&] { session.record(key, commands); });
}

void ModelSession::replay(const std::string& key) {
  SessionState& session = require_usable();
  in_context([&] { return fmt::format("replaying the graph \"{}\"", key); }, [&] { session.replay(key); });
}

void ModelSession::synchronize() { require_usable().synchronize(); }

ModelDefinition ModelSession::freeze(const Context& context) && {
  ModelSession consumed(std::move(*this));  // Whatever comes.
  return ModelDefinition(std::make_shared<const DefinitionState>(consumed.require_usable().freeze(context)));
}

}  // namespace weft
