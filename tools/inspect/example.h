#pragma once

#include <weft/context.h>
#include <weft/prepared.h>

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::tools {

/// A model that needs no files.
struct Example {
  std::string name;
  std::string about;  ///< One line.
  std::function<PreparedModel(const Context& context, std::uint32_t batch, std::uint32_t slots)> prepare;
};

[[nodiscard]] const std::vector<Example>& examples();

/// Errors: `invalid`, naming what there is.
[[nodiscard]] const Example& find_example(std::string_view name);

}  // namespace weft::tools
