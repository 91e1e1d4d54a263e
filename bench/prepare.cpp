#include "prepare.h"

#include <chrono>

namespace weft::bench {

Sample measure_prepare(const std::string& name, const Preparation& prepare, const Exchange& exchange,
                       std::uint32_t nodes, std::uint32_t slots) {
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<Runner> runner = prepare();
  const std::chrono::duration<double, std::micro> wall = std::chrono::steady_clock::now() - begin;
  Meter(name, *runner, exchange).require_answers(slots);
  return {wall.count(), wall.count() / (static_cast<double>(nodes) * slots)};
}

}  // namespace weft::bench
