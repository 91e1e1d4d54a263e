#pragma once

#include <weft/safetensors.h>
#include <weft/tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace weft::digits {

/// A safetensors file whose tensors are checked as they are read.
class TensorFile {
 public:
  /// A tensor in host memory; no dimension is 0 and all fit the kernels' 32 bits.
  template <class T>
  struct Values {
    std::vector<std::uint32_t> shape;
    std::vector<T> values;
  };
  using Floats = Values<float>;
  using Integers = Values<std::int32_t>;

  /// Errors: `io`.
  explicit TensorFile(const std::filesystem::path& path);

  /// An f32 tensor of finite numbers. Errors: `invalid` for another type or rank; those of Safetensors.
  [[nodiscard]] Floats floats(const std::string& name, std::size_t rank) const;
  /// An i32 tensor. Errors: the same.
  [[nodiscard]] Integers integers(const std::string& name, std::size_t rank) const;

  /// Throws `invalid` with this sentence about the file.
  [[noreturn]] void refuse(std::string sentence) const;

 private:
  template <class T>
  [[nodiscard]] Values<T> read(const std::string& name, std::size_t rank) const;

  std::filesystem::path path_;
  Safetensors file_;
};

}  // namespace weft::digits
