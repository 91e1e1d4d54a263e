#pragma once

#include <weft/scalar.h>

#include <cstdint>
#include <optional>
#include <string>

namespace weft {

/// A scalar whose value each request brings: a plain handle, checked at every use.
struct LateScalarId {
  std::uint64_t session = 0;
  std::uint32_t index = 0;
  friend bool operator==(const LateScalarId&, const LateScalarId&) = default;
};

/// The same with its type. An argument of dispatches, any number of them, that ModelSlot::set gives a value: see
/// ModelSession::late.
template <ScalarValue T>
struct LateScalar : LateScalarId {
  explicit LateScalar(LateScalarId id) noexcept : LateScalarId(id) {}
};

/// How a late scalar is asked for.
template <ScalarValue T>
struct LateOptions {
  std::string label = {};       ///< For messages and the topology.
  std::optional<T> value = {};  ///< Of requests that set none. Empty: each request must set one.
};

/// How a late region is asked for.
struct LateRegionOptions {
  std::string label = {};  ///< For messages and the topology.
};

}  // namespace weft
