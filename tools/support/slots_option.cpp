#include "support/slots_option.h"

namespace weft::tools {

void add_slots_option(CLI::App& app, std::uint32_t& slots) {
  constexpr std::uint32_t kMost = 1024;
  app.add_option("--slots", slots, "Requests in flight at once")
      ->check(CLI::Range(std::uint32_t{1}, kMost))
      ->capture_default_str();
}

}  // namespace weft::tools
