#pragma once

#include "encoder/bert.h"

#include <filesystem>

namespace weft::encoder {

/// A BERT encoder in Hugging Face's format: a safetensors file with the settings in its metadata, or a folder with
/// `config.json` and the weights in one file or in shards. Tensors may be prefixed `bert.`, and those of LayerNorm may
/// be called weight and bias or gamma and beta; f16 and bf16 are read as f32. Tensors of a head or a pooler are left
/// alone. Errors: `io`, `invalid` and `unsupported`, naming the path and the tensor or setting.
[[nodiscard]] Bert read_bert(const std::filesystem::path& path);

}  // namespace weft::encoder
