#pragma once

#include "late_declaration.h"
#include "loaded_kernel.h"
#include "operation.h"
#include <weft/context.h>
#include <weft/model.h>
#include <weft/region.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace weft {

/// A frozen session. Immutable.
struct DefinitionState {
  std::uint64_t session;
  Context context;
  std::vector<Allocation> allocations;
  std::vector<std::shared_ptr<const LoadedKernel>> kernels;
  std::vector<std::shared_ptr<const LateScalarDeclaration>> late_scalars;
};

/// Opens a ModelDefinition to the files of the model layer.
struct DefinitionAccess {
  [[nodiscard]] static const DefinitionState& state(const ModelDefinition& definition) noexcept {
    return *definition.state_;
  }
};

}  // namespace weft
