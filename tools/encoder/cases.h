#pragma once

#include "encoder/bert.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace weft::encoder {

/// Sequences of words, with the answers that a model must give.
struct Cases {
  std::uint32_t count = 0;
  std::uint32_t sequence = 0;  ///< Tokens of each case, padding included.
  std::uint32_t hidden = 0;
  std::vector<std::int32_t> ids;      ///< [count, sequence], each a word of the model.
  std::vector<std::int32_t> lengths;  ///< [count], each in [1, sequence].
  std::vector<float> states;          ///< [count, sequence, hidden]; empty where the file has embeddings alone.
  std::vector<float> embeddings;      ///< [count, hidden]

  [[nodiscard]] std::span<const std::int32_t> ids_of(std::size_t row) const {
    return std::span(ids).subspan(row * sequence, sequence);
  }
};

/// The tensors `input_ids`, `attention_mask`, `embeddings` and, where it has it, `last_hidden_state` of a safetensors
/// file, for a model of these sizes. Errors: `io` and `invalid`, naming file and tensor, also for a mask that is not 1
/// for the first tokens and 0 for the rest.
[[nodiscard]] Cases read_cases(const std::filesystem::path& file, const BertConfig& config);

}  // namespace weft::encoder
