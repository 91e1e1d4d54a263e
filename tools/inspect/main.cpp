#include "inspect/example.h"
#include "support/device_option.h"
#include "support/program.h"
#include "support/slots_option.h"
#include <weft/context.h>
#include <weft/error.h>
#include <weft/plan/topology.h>

#include <CLI/CLI.hpp>
#include <spdlog/fmt/fmt.h>

#include <cstdint>
#include <string>
#include <string_view>

// Shows the graph that weft makes of a model.

namespace {

constexpr std::string_view kExamplePrefix = "example:";

std::string list() {
  std::string text;
  for (const weft::tools::Example& example : weft::tools::examples())
    text += fmt::format("{}{}  {}\n", kExamplePrefix, example.name, example.about);
  return text;
}

std::string render(const weft::Topology& topology, std::string_view format) {
  if (format == "text") return to_text(topology);
  if (format == "dot") return to_dot(topology);
  if (format == "json") return to_json(topology);
  throw weft::Error(weft::ErrorCode::invalid,
                    fmt::format("There is no format \"{}\"; there is \"text\", \"dot\", \"json\".", format));
}

std::string_view example_name(std::string_view target) {
  if (target.starts_with(kExamplePrefix)) return target.substr(kExamplePrefix.size());
  throw weft::Error(
      weft::ErrorCode::invalid,
      fmt::format("\"{}\" is neither \"list\" nor {}NAME, as \"list\" names them.", target, kExamplePrefix));
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Shows the graph that weft makes of a model: nodes, edges with their reasons, memory.", "weft-inspect");
  std::string target;
  std::string format = "text";
  std::uint32_t batch = 32;
  std::uint32_t slots = 4;
  app.add_option("target", target, "list, or example:NAME")->required();
  app.add_option("--format", format, "text, dot or json")->capture_default_str();
  app.add_option("--batch", batch, "Rows of a request")->capture_default_str();
  weft::tools::add_slots_option(app, slots);
  // The host device makes the same graph and needs no GPU.
  const weft::tools::DeviceOption device(app, "host");
  return weft::tools::run_program(app, argc, argv, [&] {
    std::string text;
    if (target == "list") {
      text = list();
    } else {
      const weft::tools::Example& example = weft::tools::find_example(example_name(target));
      const weft::Context context = weft::Context::open(device.choose());
      text = render(example.prepare(context, batch, slots).topology(), format);
    }
    fmt::print("{}", text);
    return 0;
  });
}
