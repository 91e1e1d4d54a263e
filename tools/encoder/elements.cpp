#include "encoder/elements.h"

#include <weft/float16.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace weft::encoder {

DType element_named(std::string_view name) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (to_string(dtype) == name) return dtype;
  }
  throw Error(ErrorCode::invalid, "The encoder computes in f32, f16 and bf16, not in \"" + std::string(name) + "\".");
}

std::vector<std::byte> to_bytes(std::span<const float> values, DType dtype) {
  return with_element(dtype, [&]<class T>(T) {
    std::vector<std::byte> bytes(values.size() * sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T element = from_float<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
    }
    return bytes;
  });
}

std::vector<float> to_floats(std::span<const std::byte> bytes, DType dtype) {
  return with_element(dtype, [&]<class T>(T) {
    std::vector<float> values(bytes.size() / sizeof(T));
    for (std::size_t i = 0; i < values.size(); ++i) {
      T element;
      std::memcpy(&element, bytes.data() + i * sizeof(T), sizeof(T));
      values[i] = to_float(element);
    }
    return values;
  });
}

void require_finite(std::span<const float> values, const std::string& name) {
  const auto broken = std::ranges::find_if_not(values, [](float value) { return std::isfinite(value); });
  if (broken == values.end()) return;
  throw Error(ErrorCode::invalid,
              fmt::format("Element {} of {} is {}; all are finite.", broken - values.begin(), name, *broken));
}

}  // namespace weft::encoder
