#include "inspect/example.h"

#include "digits/digits.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>

namespace weft::tools {

namespace {

PreparedModel prepare_digits(const Context& context, std::uint32_t batch, std::uint32_t slots) {
  constexpr digits::Widths kWidths{64, 128, 64, 10};
  return digits::prepare(digits::build(context, digits::random_layers(kWidths, 1), batch), {.slots = slots});
}

}  // namespace

const std::vector<Example>& examples() {
  static const std::vector<Example> all{
      {"digits", "64-128-64-10 with random weights: an encoder and a head of split sums, in one graph", prepare_digits},
  };
  return all;
}

const Example& find_example(std::string_view name) {
  const auto found = std::ranges::find(examples(), name, &Example::name);
  if (found != examples().end()) return *found;
  std::string names;
  for (const Example& example : examples()) names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", example.name);
  throw Error(ErrorCode::invalid, fmt::format("There is no example \"{}\"; there is {}.", name, names));
}

}  // namespace weft::tools
