#pragma once

namespace weft {

/// A visitor made of lambdas, one for each alternative.
template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};

}  // namespace weft
