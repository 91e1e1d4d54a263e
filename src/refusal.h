#pragma once

#include <weft/error.h>

#include <source_location>
#include <string>
#include <utility>

namespace weft {

/// Throws `invalid`: the caller's mistake.
[[noreturn]] inline void refuse(std::string sentence, std::source_location where = std::source_location::current()) {
  throw Error(ErrorCode::invalid, std::move(sentence), where);
}

}  // namespace weft
