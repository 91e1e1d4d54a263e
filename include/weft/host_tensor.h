#pragma once

#include <weft/tensor.h>

#include <cstddef>
#include <span>
#include <string>

namespace weft {

/// A tensor in host memory. Borrows its bytes from whoever made it, who says how long they live.
struct HostTensor {
  TensorDesc desc;
  std::span<const std::byte>
      bytes;  ///< `desc.bytes()` of them, at any alignment: copy elements out instead of casting.
  std::string label;
};

}  // namespace weft
