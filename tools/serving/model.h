#pragma once

#include <weft/context.h>
#include <weft/prepared.h>
#include <weft/safetensors.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::serving {

/// The model for requests of up to `batch` images.
struct Bucket {
  std::uint32_t batch = 0;
  PreparedModel model;  ///< Input 0: images [batch, pixels]; output 0: logits [batch, classes].
};

/// The digits classifier of a file for each of these batch sizes, each prepared so. All of them share one copy of the
/// weights. Errors: those of weft.
[[nodiscard]] std::vector<Bucket> prepare_buckets(const Context& context, const Safetensors& file,
                                                  const std::vector<std::uint32_t>& batches,
                                                  const PrepareOptions& options);

}  // namespace weft::serving
