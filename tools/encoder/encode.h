#pragma once

#include "encoder/encoder.h"
#include <weft/prepared.h>

#include <cstdint>
#include <span>
#include <vector>

namespace weft::encoder {

/// What a request came to, in f32 whatever the encoder computes in.
struct Encoding {
  std::vector<float> embeddings;  ///< [batch, hidden]
  std::vector<float> states;      ///< [batch, sequence, hidden]
};

/// One request of a model that was prepared for embeddings and states of a bucket, from submit to answer. Sequences
/// that are shorter than the bucket's are padded with word 0. Errors: `failed` when there is no slot or no answer in
/// half an hour; those of weft.
[[nodiscard]] Encoding encode(PreparedModel& model, Bucket bucket, DType dtype,
                              const std::vector<std::span<const std::int32_t>>& sequences);

}  // namespace weft::encoder
