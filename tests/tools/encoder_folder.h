#pragma once

#include "encoder/bert.h"
#include "encoder/cases.h"
#include "tools/program.h"
#include "tools/tensor_writer.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace weft::test {

/// A model's tensors under Hugging Face's names.
[[nodiscard]] std::vector<FileTensor> bert_tensors(const encoder::Bert& bert);

/// A model's sizes under the names of `config.json`, each as its text in JSON.
[[nodiscard]] std::map<std::string, std::string> bert_settings(const encoder::BertConfig& config);

/// A small model and cases of up to 5 tokens with right answers, to be spoiled and written.
class EncoderFolder {
 public:
  explicit EncoderFolder(const std::vector<std::int32_t>& lengths = {5, 1, 3});

  std::map<std::string, std::string> settings;
  std::vector<FileTensor> model;
  std::vector<FileTensor> cases;

  [[nodiscard]] const encoder::Bert& bert() const { return bert_; }
  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

  /// The model as one file with metadata; returns its path, which lives as long as this object.
  [[nodiscard]] std::string write_model_file() const;
  /// `config.json` of the settings: text that is no JSON becomes a string.
  void write_config() const;
  /// The model as a folder with one file.
  [[nodiscard]] std::string write_model_folder() const;
  /// The model as a folder with two shards and their index.
  [[nodiscard]] std::string write_shards() const;
  [[nodiscard]] std::string write_cases() const;

 private:
  TemporaryFolder folder_;
  encoder::Bert bert_;
};

}  // namespace weft::test
