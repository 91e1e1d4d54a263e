#include "encoder/checkpoint.h"

#include "encoder/elements.h"

#include <nlohmann/json.hpp>
#include <spdlog/fmt/fmt.h>

#include <fstream>
#include <set>
#include <utility>

namespace weft::encoder {

namespace {

nlohmann::json read_json(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(ErrorCode::io, fmt::format("\"{}\" cannot be opened.", path.string()));
  const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
  if (!json.is_object()) throw Error(ErrorCode::io, fmt::format("\"{}\" is no JSON object.", path.string()));
  return json;
}

Settings read_settings(const std::filesystem::path& path) {
  const nlohmann::json json = read_json(path);
  Settings settings;
  for (const auto& [name, value] : json.items()) {
    if (value.is_string()) settings[name] = value.get<std::string>();
    if (value.is_number() || value.is_boolean()) settings[name] = value.dump();
  }
  return settings;
}

std::set<std::string> shard_names(const std::filesystem::path& index) {
  const nlohmann::json json = read_json(index);
  const auto map = json.find("weight_map");
  if (map == json.end() || !map->is_object())
    throw Error(ErrorCode::io, fmt::format("\"{}\" has no object \"weight_map\".", index.string()));
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    const std::string name = file.is_string() ? file.get<std::string>() : std::string();
    if (name.empty() || std::filesystem::path(name).filename() != name) {
      throw Error(ErrorCode::invalid, fmt::format("\"{}\" has {} for {}; it names a file of the same folder.",
                                                  index.string(), file.dump(), tensor));
    }
    names.insert(name);
  }
  return names;
}

}  // namespace

Checkpoint::Checkpoint(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    open_folder(path);
    return;
  }
  add(path);
  settings_ = Safetensors::open(path).metadata();
}

void Checkpoint::open_folder(const std::filesystem::path& folder) {
  settings_ = read_settings(folder / "config.json");
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  if (!std::filesystem::exists(index)) return add(folder / "model.safetensors");
  for (const std::string& name : shard_names(index)) add(folder / name);
}

void Checkpoint::add(const std::filesystem::path& file) {
  const Safetensors opened = Safetensors::open(file);
  for (const std::string& name : opened.names()) {
    if (!shards_.emplace(name, opened).second)
      throw Error(ErrorCode::invalid, fmt::format("\"{}\" has {}, as another shard does.", file.string(), name));
  }
}

std::vector<float> Checkpoint::floats(const std::string& name, const Shape& shape) const {
  const auto shard = shards_.find(name);
  if (shard == shards_.end()) throw Error(ErrorCode::invalid, fmt::format("There is no tensor {}.", name));
  const HostTensor tensor = shard->second.tensor(name);
  if (tensor.desc.shape() != shape || !is_element(tensor.desc.dtype())) {
    throw Error(ErrorCode::invalid, fmt::format("{} is {}; the settings ask for {}, or the same in f16 or bf16.", name,
                                                to_string(tensor.desc), to_string(TensorDesc(DType::f32, shape))));
  }
  std::vector<float> values = to_floats(tensor.bytes, tensor.desc.dtype());
  require_finite(values, name);
  return values;
}

}  // namespace weft::encoder
