#include "tools/digits_folder.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <utility>

namespace weft::test {

namespace {

std::vector<float> random_floats(std::mt19937& generator, std::size_t count) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  std::ranges::generate(values, [&] { return uniform(generator); });
  return values;
}

std::vector<double> linear(const std::vector<double>& x, const std::vector<float>& weight,
                           const std::vector<float>& bias, bool relu) {
  std::vector<double> y(bias.begin(), bias.end());
  for (std::size_t i = 0; i < y.size(); ++i) {
    for (std::size_t j = 0; j < x.size(); ++j) y[i] += x[j] * static_cast<double>(weight[i * x.size() + j]);
    if (relu) y[i] = std::max(y[i], 0.0);
  }
  return y;
}

}  // namespace

DigitsFolder::DigitsFolder(const std::array<std::size_t, 4>& widths, std::size_t rows) {
  std::mt19937 generator(1);
  std::array<std::vector<float>, 3> weights;
  std::array<std::vector<float>, 3> biases;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    weights[i] = random_floats(generator, widths[i] * widths[i + 1]);
    biases[i] = random_floats(generator, widths[i + 1]);
    const std::string name = "fc" + std::to_string(i + 1);
    model_.push_back(file_tensor(name + ".weight", {widths[i + 1], widths[i]}, weights[i]));
    model_.push_back(file_tensor(name + ".bias", {widths[i + 1]}, biases[i]));
  }
  const std::vector<float> images = random_floats(generator, rows * widths[0]);
  std::vector<float> logits;
  std::vector<std::int32_t> labels;
  for (std::size_t row = 0; row < rows; ++row) {
    const auto image = images.begin() + static_cast<std::ptrdiff_t>(row * widths[0]);
    std::vector<double> x(image, image + static_cast<std::ptrdiff_t>(widths[0]));
    for (std::size_t i = 0; i < weights.size(); ++i) x = linear(x, weights[i], biases[i], i < 2);
    for (const double value : x) logits.push_back(static_cast<float>(value));
    labels.push_back(static_cast<std::int32_t>(std::ranges::max_element(x) - x.begin()));
  }
  tests_.push_back(file_tensor("images", {rows, widths[0]}, images));
  tests_.push_back(file_tensor("labels", {rows}, labels));
  tests_.push_back(file_tensor("logits", {rows, widths[3]}, logits));
}

std::string DigitsFolder::write() const {
  write_tensors(folder_.path() / "digits.safetensors", model_);
  write_tensors(folder_.path() / "digits_test.safetensors", tests_);
  return folder_.path().string();
}

}  // namespace weft::test
