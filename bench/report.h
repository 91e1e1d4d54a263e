#pragma once

#include "machine.h"
#include "measure.h"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace weft::bench {

/// All repetitions of one work. Without a twin `raw` is empty.
struct Report {
  std::string work;                                               ///< "line", "digits", "encoder" or "prepare".
  std::vector<std::pair<std::string, std::uint64_t>> parameters;  ///< Slots, nodes, requests and so on.
  Facts machine;
  std::span<const Figure> figures = kRequestFigures;  ///< What each sample holds.
  std::vector<Sample> weft;
  std::vector<Sample> raw;
  bool is_gpu = false;  ///< Of the figures without a twin: they are a GPU's.
};

/// Medians with their spread for people, the ratio to the twin first.
[[nodiscard]] std::string to_text(const Report& report);

/// The same as JSON lines: one for weft, and one each for the twin and the ratio. A key names its unit; each figure is
/// {"median", "min", "max"} over the repetitions. Keys of the host device begin with "host_".
[[nodiscard]] std::string to_json_lines(const Report& report);

}  // namespace weft::bench
