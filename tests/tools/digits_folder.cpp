#include "tools/digits_folder.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <span>
#include <stdexcept>
#include <utility>

namespace weft::test {

namespace {

template <class T>
FileTensor make(std::string name, std::string dtype, std::vector<std::size_t> shape, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {std::move(name), std::move(dtype), std::move(shape), {bytes.begin(), bytes.end()}};
}

void write_file(const std::filesystem::path& path, const std::vector<FileTensor>& tensors) {
  nlohmann::json header = nlohmann::json::object();
  std::vector<std::byte> data;
  for (const FileTensor& tensor : tensors) {
    const std::size_t begin = data.size();
    data.insert(data.end(), tensor.bytes.begin(), tensor.bytes.end());
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file << text;
  file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(data.size()));
  file.close();
  if (!file) throw std::runtime_error("Cannot write " + path.string());
}

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

FileTensor file_tensor(std::string name, std::vector<std::size_t> shape, const std::vector<float>& values) {
  return make(std::move(name), "F32", std::move(shape), values);
}

FileTensor file_tensor(std::string name, std::vector<std::size_t> shape, const std::vector<std::int32_t>& values) {
  return make(std::move(name), "I32", std::move(shape), values);
}

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
  write_file(folder_.path() / "digits.safetensors", model_);
  write_file(folder_.path() / "digits_test.safetensors", tests_);
  return folder_.path().string();
}

FileTensor& DigitsFolder::find(std::vector<FileTensor>& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &FileTensor::name);
  if (found == tensors.end()) throw std::runtime_error("There is no tensor " + name + ".");
  return *found;
}

}  // namespace weft::test
