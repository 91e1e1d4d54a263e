#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace weft::test {

/// A tensor as it is to stand in a safetensors file.
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

void write_tensors(const std::filesystem::path& path, const std::vector<FileTensor>& tensors,
                   const std::map<std::string, std::string>& metadata = {});

void write_text(const std::filesystem::path& path, const std::string& text);

/// The tensor of this name, which must be there.
[[nodiscard]] FileTensor& find_tensor(std::vector<FileTensor>& tensors, const std::string& name);

}  // namespace weft::test
