#pragma once

#include <chrono>
#include <vector>

namespace weft::tools {

/// Percentiles of durations by nearest rank, in microseconds.
struct Percentiles {
  double p50 = 0;
  double p90 = 0;
  double p99 = 0;
  double max = 0;
};

/// All 0 without samples.
[[nodiscard]] Percentiles percentiles(std::vector<std::chrono::nanoseconds> samples);

}  // namespace weft::tools
