#pragma once

#include "tools/program.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace weft::test {

/// A tensor as it is to stand in a file.
struct FileTensor {
  std::string name;
  std::string dtype;  ///< "F32" or "I32".
  std::vector<std::size_t> shape;
  std::vector<std::byte> bytes;
};

[[nodiscard]] FileTensor file_tensor(std::string name, std::vector<std::size_t> shape,
                                     const std::vector<float>& values);
[[nodiscard]] FileTensor file_tensor(std::string name, std::vector<std::size_t> shape,
                                     const std::vector<std::int32_t>& values);

/// A digits model and test set of these sizes with right answers, to be spoiled and written.
class DigitsFolder {
 public:
  DigitsFolder(const std::array<std::size_t, 4>& widths, std::size_t rows);

  [[nodiscard]] FileTensor& model(const std::string& name) { return find(model_, name); }
  [[nodiscard]] FileTensor& tests(const std::string& name) { return find(tests_, name); }

  /// Writes both files and returns their folder, which lives as long as this object.
  [[nodiscard]] std::string write() const;

 private:
  [[nodiscard]] static FileTensor& find(std::vector<FileTensor>& tensors, const std::string& name);

  TemporaryFolder folder_;
  std::vector<FileTensor> model_;
  std::vector<FileTensor> tests_;
};

}  // namespace weft::test
