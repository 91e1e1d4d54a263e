#pragma once

#include <weft/late.h>
#include <weft/region.h>
#include <weft/tensor.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace weft {

/// What a session says of a scalar that requests bring. Immutable; there is one, whatever the number of graphs.
struct LateScalarDeclaration {
  LateScalarId id;
  std::string label;
  std::vector<std::byte> value;  ///< Zeros where it has none of its own.
  bool has_value = false;
};

/// The same of memory.
struct LateRegionDeclaration {
  Region region;  ///< All of it.
  std::string label;
  std::optional<TensorDesc> desc;  ///< Empty: any tensor of these bytes.
};

}  // namespace weft
