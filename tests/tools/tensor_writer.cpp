#include "tools/tensor_writer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <fstream>
#include <span>
#include <stdexcept>
#include <utility>

namespace weft::test {

namespace {

template <class T>
FileTensor make(std::string name, std::string dtype, std::vector<std::size_t> shape, const std::vector<T>& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {std::move(name), std::move(dtype), std::move(shape), {bytes.begin(), bytes.end()}};
}

}  // namespace

FileTensor file_tensor(std::string name, std::vector<std::size_t> shape, const std::vector<float>& values) {
  return make(std::move(name), "F32", std::move(shape), values);
}

FileTensor file_tensor(std::string name, std::vector<std::size_t> shape, const std::vector<std::int32_t>& values) {
  return make(std::move(name), "I32", std::move(shape), values);
}

void write_tensors(const std::filesystem::path& path, const std::vector<FileTensor>& tensors,
                   const std::map<std::string, std::string>& metadata) {
  nlohmann::json header = nlohmann::json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  std::string data;
  for (const FileTensor& tensor : tensors) {
    const std::size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
    header[tensor.name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  const std::string text = header.dump();
  const std::uint64_t length = text.size();
  write_text(path, std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text + data);
}

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("Cannot write " + path.string());
}

FileTensor& find_tensor(std::vector<FileTensor>& tensors, const std::string& name) {
  const auto found = std::ranges::find(tensors, name, &FileTensor::name);
  if (found == tensors.end()) throw std::runtime_error("There is no tensor " + name + ".");
  return *found;
}

}  // namespace weft::test
