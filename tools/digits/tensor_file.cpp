#include "digits/tensor_file.h"

#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

namespace weft::digits {

TensorFile::TensorFile(const std::filesystem::path& path) : path_(path), file_(Safetensors::open(path)) {}

void TensorFile::refuse(std::string sentence) const {
  Error error(ErrorCode::invalid, std::move(sentence));
  error.add_context(fmt::format("reading \"{}\"", path_.string()));
  throw error;
}

template <class T>
TensorFile::Values<T> TensorFile::read(const std::string& name, std::size_t rank) const {
  const HostTensor tensor = file_.tensor(name);
  if (tensor.desc.dtype() != DTypeOf<T>::value || tensor.desc.shape().size() != rank) {
    refuse(fmt::format("{} is {}; a digits model has {} with {} dimensions there.", name, to_string(tensor.desc),
                       to_string(DTypeOf<T>::value), rank));
  }
  Values<T> result;
  for (const std::uint64_t size : tensor.desc.shape()) {
    if (size == 0 || size > std::numeric_limits<std::uint32_t>::max())
      refuse(fmt::format("{} is {}; each dimension is from 1 to 2^32 - 1.", name, to_string(tensor.desc)));
    result.shape.push_back(static_cast<std::uint32_t>(size));
  }
  result.values.resize(tensor.desc.count());
  std::memcpy(result.values.data(), tensor.bytes.data(), tensor.bytes.size());
  return result;
}

TensorFile::Floats TensorFile::floats(const std::string& name, std::size_t rank) const {
  Floats result = read<float>(name, rank);
  const auto broken = std::ranges::find_if_not(result.values, [](float value) { return std::isfinite(value); });
  if (broken != result.values.end())
    refuse(fmt::format("Element {} of {} is {}; all are finite.", broken - result.values.begin(), name, *broken));
  return result;
}

TensorFile::Integers TensorFile::integers(const std::string& name, std::size_t rank) const {
  return read<std::int32_t>(name, rank);
}

}  // namespace weft::digits
