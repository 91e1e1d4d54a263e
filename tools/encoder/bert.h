#pragma once

#include <cstdint>
#include <vector>

// A BERT encoder in host memory, in f32: sizes and weights.

namespace weft::encoder {

struct BertConfig {
  std::uint32_t hidden = 0;
  std::uint32_t layers = 0;
  std::uint32_t heads = 0;
  std::uint32_t intermediate = 0;
  std::uint32_t words = 0;        ///< Rows of the table of words: the vocabulary.
  std::uint32_t positions = 0;    ///< Rows of the table of positions: the longest sequence.
  std::uint32_t token_types = 0;  ///< Rows of the table of token types.
  float layer_norm_eps = 0;

  [[nodiscard]] std::uint32_t head_size() const noexcept { return hidden / heads; }
};

/// y = x w^T + b, w of shape [out, in].
struct Linear {
  std::vector<float> weight;
  std::vector<float> bias;
};

struct LayerNorm {
  std::vector<float> gamma;
  std::vector<float> beta;
};

struct BertLayer {
  Linear qkv;  ///< Query, key and value, one below the other: [3 hidden, hidden].
  Linear attention_output;
  LayerNorm attention_norm;
  Linear intermediate;
  Linear output;
  LayerNorm output_norm;
};

struct Bert {
  BertConfig config;
  std::vector<float> words;        ///< [words, hidden]
  std::vector<float> positions;    ///< [positions, hidden]
  std::vector<float> token_types;  ///< [token_types, hidden]
  LayerNorm embedding_norm;
  std::vector<BertLayer> layers;
};

}  // namespace weft::encoder
