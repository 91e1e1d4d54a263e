#include "tools/encoder_folder.h"

#include "tools/encoder_reference.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace weft::test {

using encoder::Bert;
using encoder::BertConfig;
using encoder::BertLayer;
using encoder::Cases;
using encoder::LayerNorm;
using encoder::Linear;

namespace {

constexpr BertConfig kSmall{.hidden = 8,
                            .layers = 2,
                            .heads = 2,
                            .intermediate = 12,
                            .words = 11,
                            .positions = 7,
                            .token_types = 2,
                            .layer_norm_eps = 1e-12f};

class Namer {
 public:
  void matrix(const std::string& name, std::size_t columns, const std::vector<float>& values) {
    tensors.push_back(file_tensor(name, {values.size() / columns, columns}, values));
  }

  void norm(const std::string& name, const LayerNorm& norm) {
    vector(name + ".weight", norm.gamma);
    vector(name + ".bias", norm.beta);
  }

  void linear(const std::string& name, const Linear& linear) {
    matrix(name + ".weight", linear.weight.size() / linear.bias.size(), linear.weight);
    vector(name + ".bias", linear.bias);
  }

  void layer(const std::string& name, const BertLayer& layer, std::size_t hidden) {
    std::size_t part = 0;
    for (const char* one : {"query", "key", "value"}) {
      const auto slice = [&](const std::vector<float>& all, std::size_t count) {
        const auto from = all.begin() + static_cast<std::ptrdiff_t>(part * count);
        return std::vector<float>(from, from + static_cast<std::ptrdiff_t>(count));
      };
      linear(name + "attention.self." + one, {slice(layer.qkv.weight, hidden * hidden), slice(layer.qkv.bias, hidden)});
      ++part;
    }
    linear(name + "attention.output.dense", layer.attention_output);
    norm(name + "attention.output.LayerNorm", layer.attention_norm);
    linear(name + "intermediate.dense", layer.intermediate);
    linear(name + "output.dense", layer.output);
    norm(name + "output.LayerNorm", layer.output_norm);
  }

  std::vector<FileTensor> tensors;

 private:
  void vector(const std::string& name, const std::vector<float>& values) {
    tensors.push_back(file_tensor(name, {values.size()}, values));
  }
};

std::vector<FileTensor> case_tensors(const Cases& cases) {
  std::vector<std::int32_t> mask;
  for (const std::int32_t length : cases.lengths) {
    for (std::uint32_t token = 0; token < cases.sequence; ++token)
      mask.push_back(static_cast<std::int32_t>(token) < length ? 1 : 0);
  }
  return {file_tensor("input_ids", {cases.count, cases.sequence}, cases.ids),
          file_tensor("attention_mask", {cases.count, cases.sequence}, mask),
          file_tensor("last_hidden_state", {cases.count, cases.sequence, cases.hidden}, cases.states),
          file_tensor("embeddings", {cases.count, cases.hidden}, cases.embeddings)};
}

}  // namespace

std::vector<FileTensor> bert_tensors(const Bert& bert) {
  Namer namer;
  namer.matrix("embeddings.word_embeddings.weight", bert.config.hidden, bert.words);
  namer.matrix("embeddings.position_embeddings.weight", bert.config.hidden, bert.positions);
  namer.matrix("embeddings.token_type_embeddings.weight", bert.config.hidden, bert.token_types);
  namer.norm("embeddings.LayerNorm", bert.embedding_norm);
  for (std::size_t i = 0; i < bert.layers.size(); ++i)
    namer.layer("encoder.layer." + std::to_string(i) + ".", bert.layers[i], bert.config.hidden);
  return std::move(namer.tensors);
}

std::map<std::string, std::string> bert_settings(const BertConfig& config) {
  return {{"hidden_size", std::to_string(config.hidden)},
          {"num_hidden_layers", std::to_string(config.layers)},
          {"num_attention_heads", std::to_string(config.heads)},
          {"intermediate_size", std::to_string(config.intermediate)},
          {"vocab_size", std::to_string(config.words)},
          {"max_position_embeddings", std::to_string(config.positions)},
          {"layer_norm_eps", "1e-12"},
          {"hidden_act", "gelu"}};
}

EncoderFolder::EncoderFolder(const std::vector<std::int32_t>& lengths)
    : settings(bert_settings(kSmall)), bert_(random_bert(kSmall, 3)) {
  model = bert_tensors(bert_);
  cases = case_tensors(reference_cases(bert_, 5, lengths, 4));
}

std::string EncoderFolder::write_model_file() const {
  write_tensors(path() / "bert.safetensors", model, settings);
  return (path() / "bert.safetensors").string();
}

void EncoderFolder::write_config() const {
  nlohmann::json config{{"architectures", {"BertModel"}}, {"torch_dtype", nullptr}};
  for (const auto& [name, text] : settings)
    config[name] = nlohmann::json::accept(text) ? nlohmann::json::parse(text) : nlohmann::json(text);
  write_text(path() / "config.json", config.dump());
}

std::string EncoderFolder::write_model_folder() const {
  write_config();
  write_tensors(path() / "model.safetensors", model, {{"format", "pt"}});
  return path().string();
}

std::string EncoderFolder::write_shards() const {
  write_config();
  nlohmann::json map = nlohmann::json::object();
  std::vector<FileTensor> shards[2];
  for (std::size_t i = 0; i < model.size(); ++i) {
    shards[i % 2].push_back(model[i]);
    map[model[i].name] = i % 2 == 0 ? "model-1.safetensors" : "model-2.safetensors";
  }
  write_tensors(path() / "model-1.safetensors", shards[0]);
  write_tensors(path() / "model-2.safetensors", shards[1]);
  write_text(path() / "model.safetensors.index.json", nlohmann::json{{"weight_map", map}}.dump());
  return path().string();
}

std::string EncoderFolder::write_cases() const {
  write_tensors(path() / "cases.safetensors", cases);
  return (path() / "cases.safetensors").string();
}

}  // namespace weft::test
