#include "context_state.h"
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
  for (const std::shared_ptr<Weight>& weight : weights_) weight->adopt(home.domain());
  return {id_, context, std::move(allocations_), std::move(kernels_)};
}

}  // namespace weft
