#include "buffer_storage.h"
#include "context_state.h"
#include "error_context.h"
#include "refusal.h"
#include "session_state.h"

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace weft {

DefinitionState SessionState::freeze(const Context& context) {
  synchronize();
  const ContextState& home = *ContextAccess::state(context);
  if (home.domain()->api() != domain_->api()) {
    refuse(fmt::format("The session is of device {} and the context of {}.", to_string(device_),
                       to_string(home.device())));
  }
  graphs_.clear();  // Before the first adoption: nothing of the session touches what others use.
  // All or none: a refusal leaves the context as it was.
  std::uint64_t bytes = 0;
  for (const std::shared_ptr<Weight>& weight : weights_) bytes += weight->uncharged_bytes(*home.domain());
  for (const std::uint32_t state : states_) bytes += memory_[state].uncharged_bytes(*home.domain());
  MemoryReservation charge = in_context(
      [&] { return fmt::format("adopting {} weights and {} states of a session", weights_.size(), states_.size()); },
      [&] { return home.domain()->charge(bytes); });
  for (const std::shared_ptr<Weight>& weight : weights_)
    weight->adopt(home.domain(), charge.split(weight->uncharged_bytes(*home.domain())));
  for (const std::uint32_t index : states_) {
    PlacedMemory memory = std::move(memory_[index]);
    memory.count_in(home.domain(), charge.split(memory.uncharged_bytes(*home.domain())));
    Allocation& state = allocations_[index];
    const auto storage =
        std::make_shared<BufferStorage>(ContextAccess::state(context), state.label, std::move(memory), state.bytes);
    storage->count_requested();
    state.memory = BufferStorage::track(storage);
    state.memory->mark_state();
  }
  return {id_, context, std::move(allocations_), std::move(kernels_), std::move(late_scalars_)};
}

}  // namespace weft
