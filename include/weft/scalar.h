#pragma once

#include <weft/tensor.h>

#include <concepts>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <vector>

namespace weft {

/// A type that can be passed to a kernel as one scalar, byte for byte. No device has a `long double`.
template <class T>
concept ScalarValue = std::same_as<T, std::remove_cv_t<T>> &&
    ((std::is_arithmetic_v<T> && !std::same_as<T, long double>) || Element<T>);

/// One scalar: its bytes as the device reads them (little-endian), and by their number its width.
struct Scalar {
  std::vector<std::byte> bytes;

  template <ScalarValue T>
  explicit Scalar(T value) : bytes(sizeof(T)) {
    std::memcpy(bytes.data(), &value, sizeof(T));
  }
};

}  // namespace weft
