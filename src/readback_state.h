#pragma once

#include <weft/completion.h>
#include <weft/readback.h>
#include <weft/tensor.h>

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace weft {

/// What is behind a Readback.
struct ReadbackState {
  struct Tensor {
    TensorDesc desc;
    std::span<const std::byte> bytes;
  };
  std::vector<Tensor> tensors;
  Completion completion;
  std::shared_ptr<const void> owner;  ///< Of the bytes.
};

/// Makes readbacks for the files that submit them.
struct ReadbackAccess {
  [[nodiscard]] static Readback make(ReadbackState state) {
    return Readback(std::make_unique<ReadbackState>(std::move(state)));
  }
};

}  // namespace weft
