#pragma once

#include "encoder/cases.h"
#include "encoder/encoder.h"
#include "exchange.h"
#include "weft_runner.h"
#include <weft/prepared.h>

#include <cstdint>
#include <memory>

namespace weft::bench {

/// All cases as one batch; each request has them in another order, one case further than the one before. An input is
/// the words of a request, as an Exchange carries them: the bits of floats. Elements of an embedding may be off by what
/// the type must keep, relative to the largest of all.
[[nodiscard]] Exchange encoder_exchange(const encoder::Cases& cases, DType dtype);

/// Bytes of the matrices of all layers, each of which every request reads once at least.
[[nodiscard]] std::uint64_t layer_weight_bytes(const encoder::Encoder& encoder);

/// Requests of the cases' shape, host words in and host embeddings out. They must be those of `encoder_exchange`, in
/// its order: each is given the lengths of its cases.
[[nodiscard]] std::unique_ptr<WeftRunner> encoder_runner(const encoder::Encoder& encoder, const encoder::Cases& cases,
                                                         std::uint32_t slots);

}  // namespace weft::bench
