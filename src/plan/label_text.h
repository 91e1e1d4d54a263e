#pragma once

#include <string>
#include <string_view>

namespace weft {

/// `label` on one line: quotes, backslashes and control characters escaped, valid UTF-8 as it is, any other byte as
/// \xNN. Different labels give different texts.
[[nodiscard]] std::string escaped_label(std::string_view label);

/// The same between double quotes.
[[nodiscard]] std::string quoted_label(std::string_view label);

/// `text` with quotes and backslashes escaped and line feeds as \n, for a DOT string without its quotes.
[[nodiscard]] std::string dot_escaped(std::string_view text);

}  // namespace weft
