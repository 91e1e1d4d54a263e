#pragma once

#include <weft/plan/hazard.h>

#include <cstddef>
#include <cstdint>

namespace weft {

/// What the tests may spend on pairs that are not decided at sight.
struct ReductionLimits {
  std::size_t exact_commands = 10'000;  ///< Up to here the batched test runs at any cost.
  std::uint64_t cheap_words = 2048;     ///< Beyond, it runs at once up to this many word operations a command.
  std::size_t chain_entries = std::size_t{1} << 27;    ///< Then the table of chains may have this many entries.
  std::uint64_t batch_words = std::uint64_t{1} << 36;  ///< Then the batched test may take this many word operations.
};

/// A list's predecessors without those that others imply.
struct Reduction {
  Predecessors kept;           ///< `steps` counts the pairs and table entries looked at.
  std::uint64_t unproven = 0;  ///< Kept pairs that no test decided.
};

/// The transitive reduction of `all`. A pair is dropped only if a path through kept pairs replaces it.
[[nodiscard]] Reduction reduce(const Predecessors& all, const ReductionLimits& limits = {});

}  // namespace weft
