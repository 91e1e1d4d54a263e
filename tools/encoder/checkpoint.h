#pragma once

#include "encoder/bert_config.h"
#include <weft/error.h>
#include <weft/safetensors.h>
#include <weft/tensor.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace weft::encoder {

/// The weights of a Hugging Face model and its settings: one safetensors file that carries both, or a folder with
/// `config.json` and either `model.safetensors` or the shards that `model.safetensors.index.json` lists.
class Checkpoint {
 public:
  /// Errors: `io` for what cannot be read, `invalid` for an index that names a file outside the folder.
  explicit Checkpoint(const std::filesystem::path& path);

  [[nodiscard]] const Settings& settings() const noexcept { return settings_; }
  [[nodiscard]] bool contains(const std::string& name) const { return shards_.contains(name); }

  /// The elements of an f32, f16 or bf16 tensor, as f32. Errors: `invalid` when there is no such tensor, or it has
  /// another element type or shape, or an element that is not finite.
  [[nodiscard]] std::vector<float> floats(const std::string& name, const Shape& shape) const;

 private:
  void open_folder(const std::filesystem::path& folder);
  void add(const std::filesystem::path& file);

  Settings settings_;
  std::map<std::string, Safetensors> shards_;  // By the names of their tensors.
};

}  // namespace weft::encoder
