#pragma once

#include "tools/program.h"
#include "tools/tensor_writer.h"

#include <array>
#include <cstddef>
#include <string>
#include <vector>

namespace weft::test {

/// A digits model and test set of these sizes with right answers, to be spoiled and written.
class DigitsFolder {
 public:
  DigitsFolder(const std::array<std::size_t, 4>& widths, std::size_t rows);

  [[nodiscard]] FileTensor& model(const std::string& name) { return find_tensor(model_, name); }
  [[nodiscard]] FileTensor& tests(const std::string& name) { return find_tensor(tests_, name); }

  /// Writes both files and returns their folder, which lives as long as this object.
  [[nodiscard]] std::string write() const;

 private:
  TemporaryFolder folder_;
  std::vector<FileTensor> model_;
  std::vector<FileTensor> tests_;
};

}  // namespace weft::test
