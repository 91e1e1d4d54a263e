#include "tools/encoder_reference.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <random>
#include <span>

namespace weft::test {

using encoder::Bert;
using encoder::BertConfig;
using encoder::BertLayer;
using encoder::Cases;
using encoder::LayerNorm;
using encoder::Linear;

namespace {

class Dice {
 public:
  explicit Dice(std::uint32_t seed) : generator_(seed) {}

  std::vector<float> floats(std::size_t count, double spread, double mean = 0) {
    std::normal_distribution<double> normal(mean, spread);
    std::vector<float> values(count);
    std::ranges::generate(values, [&] { return static_cast<float>(normal(generator_)); });
    return values;
  }

  LayerNorm norm(std::size_t width) { return {floats(width, 0.1, 1), floats(width, 0.1)}; }

  Linear linear(std::size_t in, std::size_t out) {
    return {floats(out * in, 1 / std::sqrt(static_cast<double>(in))), floats(out, 0.1)};
  }

  std::int32_t word(std::uint32_t words) {
    return std::uniform_int_distribution<std::int32_t>(0, static_cast<std::int32_t>(words) - 1)(generator_);
  }

 private:
  std::mt19937 generator_;
};

/// Rows of a width, one a token.
using Matrix = std::vector<std::vector<double>>;

std::vector<double> normalize(const LayerNorm& norm, std::vector<double> row, double eps) {
  const auto width = static_cast<double>(row.size());
  double mean = 0;
  for (const double value : row) mean += value / width;
  double variance = 0;
  for (const double value : row) variance += (value - mean) * (value - mean) / width;
  for (std::size_t i = 0; i < row.size(); ++i) {
    row[i] = (row[i] - mean) / std::sqrt(variance + eps) * static_cast<double>(norm.gamma[i]) +
             static_cast<double>(norm.beta[i]);
  }
  return row;
}

std::vector<double> project(const Linear& linear, const std::vector<double>& row) {
  std::vector<double> result(linear.bias.begin(), linear.bias.end());
  for (std::size_t out = 0; out < result.size(); ++out) {
    for (std::size_t in = 0; in < row.size(); ++in)
      result[out] += static_cast<double>(linear.weight[out * row.size() + in]) * row[in];
  }
  return result;
}

std::vector<double> sum(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  return a;
}

/// What one token takes from all in one head, whose values begin at `from` in a row of qkv.
std::vector<double> attend(const Matrix& qkv, std::size_t token, std::size_t from, std::size_t size,
                           std::size_t hidden) {
  std::vector<double> weights;
  double total = 0;
  for (const std::vector<double>& other : qkv) {
    double score = 0;
    for (std::size_t i = 0; i < size; ++i) score += qkv[token][from + i] * other[hidden + from + i];
    weights.push_back(std::exp(score / std::sqrt(static_cast<double>(size))));
    total += weights.back();
  }
  std::vector<double> result(size);
  for (std::size_t other = 0; other < qkv.size(); ++other) {
    for (std::size_t i = 0; i < size; ++i) result[i] += weights[other] / total * qkv[other][2 * hidden + from + i];
  }
  return result;
}

Matrix embed(const Bert& bert, std::span<const std::int32_t> ids) {
  const std::size_t hidden = bert.config.hidden;
  Matrix rows;
  for (std::size_t token = 0; token < ids.size(); ++token) {
    std::vector<double> row(hidden);
    for (std::size_t i = 0; i < hidden; ++i) {
      row[i] = static_cast<double>(bert.words[static_cast<std::size_t>(ids[token]) * hidden + i]) +
               static_cast<double>(bert.positions[token * hidden + i]) + static_cast<double>(bert.token_types[i]);
    }
    rows.push_back(normalize(bert.embedding_norm, std::move(row), static_cast<double>(bert.config.layer_norm_eps)));
  }
  return rows;
}

Matrix run_layer(const BertLayer& layer, const BertConfig& config, const Matrix& x) {
  const auto eps = static_cast<double>(config.layer_norm_eps);
  Matrix qkv;
  for (const std::vector<double>& row : x) qkv.push_back(project(layer.qkv, row));
  Matrix y;
  for (std::size_t token = 0; token < x.size(); ++token) {
    std::vector<double> heads;
    for (std::size_t from = 0; from < config.hidden; from += config.head_size()) {
      const std::vector<double> head = attend(qkv, token, from, config.head_size(), config.hidden);
      heads.insert(heads.end(), head.begin(), head.end());
    }
    const std::vector<double> attended =
        normalize(layer.attention_norm, sum(project(layer.attention_output, heads), x[token]), eps);
    std::vector<double> wide = project(layer.intermediate, attended);
    for (double& value : wide) value *= (1 + std::erf(value / std::sqrt(2.0))) / 2;
    y.push_back(normalize(layer.output_norm, sum(project(layer.output, wide), attended), eps));
  }
  return y;
}

std::vector<double> pool(const Matrix& states) {
  std::vector<double> mean(states.front().size());
  for (const std::vector<double>& row : states) mean = sum(std::move(mean), row);
  double square = 0;
  for (const double value : mean) square += value * value;
  for (double& value : mean) value /= std::sqrt(square);
  return mean;
}

}  // namespace

Bert random_bert(const BertConfig& config, std::uint32_t seed) {
  Dice dice(seed);
  const std::size_t hidden = config.hidden;
  Bert bert{.config = config,
            .words = dice.floats(config.words * hidden, 1),
            .positions = dice.floats(config.positions * hidden, 1),
            .token_types = dice.floats(config.token_types * hidden, 1),
            .embedding_norm = dice.norm(hidden),
            .layers = {}};
  for (std::uint32_t i = 0; i < config.layers; ++i) {
    bert.layers.push_back({.qkv = dice.linear(hidden, 3 * hidden),
                           .attention_output = dice.linear(hidden, hidden),
                           .attention_norm = dice.norm(hidden),
                           .intermediate = dice.linear(hidden, config.intermediate),
                           .output = dice.linear(config.intermediate, hidden),
                           .output_norm = dice.norm(hidden)});
  }
  return bert;
}

Cases reference_cases(const Bert& bert, std::uint32_t sequence, const std::vector<std::int32_t>& lengths,
                      std::uint32_t seed) {
  Dice dice(seed);
  const std::uint32_t hidden = bert.config.hidden;
  Cases cases{.count = static_cast<std::uint32_t>(lengths.size()),
              .sequence = sequence,
              .hidden = hidden,
              .ids = {},
              .lengths = lengths,
              .states = std::vector<float>(lengths.size() * sequence * hidden),
              .embeddings = {}};
  for (std::size_t row = 0; row < lengths.size(); ++row) {
    for (std::uint32_t token = 0; token < sequence; ++token) cases.ids.push_back(dice.word(bert.config.words));
    Matrix states = embed(bert, cases.ids_of(row).first(static_cast<std::size_t>(lengths[row])));
    for (const BertLayer& layer : bert.layers) states = run_layer(layer, bert.config, states);
    auto next = cases.states.begin() + static_cast<std::ptrdiff_t>(row * sequence * hidden);
    for (const std::vector<double>& state : states) {
      for (const double value : state) *next++ = static_cast<float>(value);
    }
    for (const double value : pool(states)) cases.embeddings.push_back(static_cast<float>(value));
  }
  return cases;
}

}  // namespace weft::test
