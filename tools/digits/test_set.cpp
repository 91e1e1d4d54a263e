#include "digits/test_set.h"

#include "digits/tensor_file.h"

#include <spdlog/fmt/fmt.h>
#include <spdlog/fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

namespace weft::digits {

namespace {

void require_shape(const TensorFile& file, const char* name, const std::vector<std::uint32_t>& given,
                   const std::vector<std::uint32_t>& expected) {
  if (given == expected) return;
  file.refuse(fmt::format("{} has shape [{}]; the model and the images ask for [{}].", name, fmt::join(given, ","),
                          fmt::join(expected, ",")));
}

}  // namespace

double TestSet::tolerance() const {
  double largest = 1;
  for (const float logit : logits) largest = std::max(largest, std::abs(static_cast<double>(logit)));
  return 1e-4 * largest;
}

TestSet read_test_set(const std::filesystem::path& path, const Widths& widths) {
  const TensorFile file(path);
  TensorFile::Floats images = file.floats("images", 2);
  TensorFile::Integers labels = file.integers("labels", 1);
  TensorFile::Floats logits = file.floats("logits", 2);
  const std::uint32_t rows = images.shape[0];
  const std::uint32_t classes = widths.back();
  require_shape(file, "images", images.shape, {rows, widths.front()});
  require_shape(file, "labels", labels.shape, {rows});
  require_shape(file, "logits", logits.shape, {rows, classes});
  for (std::size_t row = 0; row < rows; ++row) {
    const std::int32_t label = labels.values[row];
    if (label < 0 || static_cast<std::uint32_t>(label) >= classes)
      file.refuse(fmt::format("labels[{}] is {}; the model has classes 0 to {}.", row, label, classes - 1));
  }
  return {rows, widths.front(), classes, std::move(images.values), std::move(labels.values), std::move(logits.values)};
}

}  // namespace weft::digits
