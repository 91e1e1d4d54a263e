#pragma once

#include "encoder/bert.h"
#include "encoder/cases.h"

#include <cstdint>
#include <vector>

namespace weft::test {

/// Weights that keep activations near 1 and spread the attention. The same seed gives the same weights.
[[nodiscard]] encoder::Bert random_bert(const encoder::BertConfig& config, std::uint32_t seed);

/// Random words in sequences of these lengths, padded with random words, and what the model makes of them in
/// float64, each sequence by itself, as the paper and its authors' code have it.
[[nodiscard]] encoder::Cases reference_cases(const encoder::Bert& bert, std::uint32_t sequence,
                                             const std::vector<std::int32_t>& lengths, std::uint32_t seed);

}  // namespace weft::test
