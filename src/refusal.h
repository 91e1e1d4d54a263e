#pragma once

#include <weft/error.h>

#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

namespace weft {

/// Throws `invalid`: the caller's mistake.
[[noreturn]] inline void refuse(std::string sentence, std::source_location where = std::source_location::current()) {
  throw Error(ErrorCode::invalid, std::move(sentence), where);
}

/// Refuses a number that a cast made an enumerator. `last` is the enumeration's last one.
template <class E>
requires std::is_enum_v<E>
void require_enumerator(const std::string& what, E value, E last,
                        std::source_location where = std::source_location::current()) {
  using Number = std::underlying_type_t<E>;
  static_assert(std::is_unsigned_v<Number>);
  if (static_cast<Number>(value) > static_cast<Number>(last))
    refuse("The " + what + " is " + std::to_string(static_cast<Number>(value)) + ", which is none.", where);
}

}  // namespace weft
