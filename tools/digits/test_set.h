#pragma once

#include "digits/digits.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

namespace weft::digits {

/// Images with the answers that the model must give.
struct TestSet {
  std::size_t rows = 0;
  std::size_t pixels = 0;   ///< Of an image.
  std::size_t classes = 0;  ///< Logits of an image.
  std::vector<float> images;
  std::vector<std::int32_t> labels;  ///< Each in [0, classes).
  std::vector<float> logits;         ///< Of a float64 reference.

  [[nodiscard]] std::span<const float> image(std::size_t row) const {
    return std::span(images).subspan(row * pixels, pixels);
  }
  [[nodiscard]] std::span<const float> reference(std::size_t row) const {
    return std::span(logits).subspan(row * classes, classes);
  }
  /// What an answer may differ from the reference by: 1e-4 of the largest logit, and of 1 where all are smaller.
  [[nodiscard]] double tolerance() const;
};

/// The tensors `images`, `labels` and `logits` of a safetensors file, for a model of these widths. Errors: `io` and
/// `invalid`, naming file and tensor.
[[nodiscard]] TestSet read_test_set(const std::filesystem::path& file, const Widths& widths);

}  // namespace weft::digits
