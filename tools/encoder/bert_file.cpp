#include "encoder/bert_file.h"

#include "encoder/bert_config.h"
#include "encoder/checkpoint.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace weft::encoder {

namespace {

class Reader {
 public:
  explicit Reader(const Checkpoint& checkpoint)
      : checkpoint_(checkpoint),
        prefix_(checkpoint.contains("bert.embeddings.word_embeddings.weight") ? "bert." : ""),
        config_(read_config(checkpoint.settings())) {}

  Bert read() const {
    Bert bert{.config = config_,
              .words = embeddings("word", config_.words),
              .positions = embeddings("position", config_.positions),
              .token_types = embeddings("token_type", config_.token_types),
              .embedding_norm = layer_norm("embeddings.LayerNorm"),
              .layers = {}};
    for (std::uint32_t i = 0; i < config_.layers; ++i)
      bert.layers.push_back(layer(fmt::format("encoder.layer.{}.", i)));
    return bert;
  }

 private:
  std::vector<float> floats(const std::string& name, const Shape& shape) const {
    return checkpoint_.floats(prefix_ + name, shape);
  }

  std::vector<float> embeddings(const char* of, std::uint32_t rows) const {
    return floats(fmt::format("embeddings.{}_embeddings.weight", of), {rows, config_.hidden});
  }

  LayerNorm layer_norm(const std::string& name) const {
    // Checkpoints that were converted from TensorFlow have the older names.
    const bool is_old = checkpoint_.contains(prefix_ + name + ".gamma");
    return {floats(name + (is_old ? ".gamma" : ".weight"), {config_.hidden}),
            floats(name + (is_old ? ".beta" : ".bias"), {config_.hidden})};
  }

  Linear linear(const std::string& name, std::uint32_t in, std::uint32_t out) const {
    return {floats(name + ".weight", {out, in}), floats(name + ".bias", {out})};
  }

  Linear qkv(const std::string& name) const {
    Linear joined;
    for (const char* part : {"query", "key", "value"}) {
      const Linear one = linear(name + part, config_.hidden, config_.hidden);
      joined.weight.insert(joined.weight.end(), one.weight.begin(), one.weight.end());
      joined.bias.insert(joined.bias.end(), one.bias.begin(), one.bias.end());
    }
    return joined;
  }

  BertLayer layer(const std::string& name) const {
    return {.qkv = qkv(name + "attention.self."),
            .attention_output = linear(name + "attention.output.dense", config_.hidden, config_.hidden),
            .attention_norm = layer_norm(name + "attention.output.LayerNorm"),
            .intermediate = linear(name + "intermediate.dense", config_.hidden, config_.intermediate),
            .output = linear(name + "output.dense", config_.intermediate, config_.hidden),
            .output_norm = layer_norm(name + "output.LayerNorm")};
  }

  const Checkpoint& checkpoint_;
  std::string prefix_;
  BertConfig config_;
};

}  // namespace

Bert read_bert(const std::filesystem::path& path) {
  try {
    return Reader(Checkpoint(path)).read();
  } catch (Error& error) {
    error.add_context(fmt::format("reading the model \"{}\"", path.string()));
    throw;
  }
}

}  // namespace weft::encoder
