#include "support/percentiles.h"

#include <algorithm>
#include <cstddef>

namespace weft::tools {

Percentiles percentiles(std::vector<std::chrono::nanoseconds> samples) {
  if (samples.empty()) return {};
  std::ranges::sort(samples);
  const auto at = [&](std::size_t percent) {
    const std::size_t rank = (samples.size() * percent + 99) / 100;  // From 1: the smallest that covers the share.
    return std::chrono::duration<double, std::micro>(samples[rank - 1]).count();
  };
  return {at(50), at(90), at(99), at(100)};
}

}  // namespace weft::tools
