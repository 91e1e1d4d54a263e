#pragma once

#include <weft/error.h>

#include <utility>

namespace weft {

/// Runs `body`; an Error that leaves it gains the context that `describe` returns. `describe` runs on failure only.
template <class Describe, class Body>
decltype(auto) in_context(Describe&& describe, Body&& body) {
  try {
    return std::forward<Body>(body)();
  } catch (Error& error) {
    error.add_context(std::forward<Describe>(describe)());
    throw;
  }
}

}  // namespace weft
