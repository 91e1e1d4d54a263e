#pragma once

namespace weft {

/// Marks calls in which the caller vouches for what weft cannot see: that kernels access what their specs and bindings
/// say, and that memory is what it is said to be.
struct Trusted {
  explicit Trusted() = default;
};
inline constexpr Trusted trusted{};

}  // namespace weft
