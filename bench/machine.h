#pragma once

#include <weft/context.h>

#include <string>
#include <utility>
#include <vector>

namespace weft::bench {

/// Names and values.
using Facts = std::vector<std::pair<std::string, std::string>>;

/// What a figure depends on beside the code: versions, processors, how the program was built.
[[nodiscard]] Facts describe_machine(const Context& context);

}  // namespace weft::bench
