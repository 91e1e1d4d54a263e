#pragma once

#include "encoder/cases.h"
#include "encoder/encoder.h"

#include <cstdint>
#include <span>
#include <vector>

namespace weft::encoder {

/// Relative errors, |given - expected| / |expected| by Euclidean norms.
struct Errors {
  double states = 0;      ///< Over the tokens of a case; 0 where the answers are not known.
  double embeddings = 0;  ///< Over its embedding.

  /// The larger of each.
  [[nodiscard]] friend Errors max(Errors a, Errors b) noexcept {
    return {a.states > b.states ? a.states : b.states, a.embeddings > b.embeddings ? a.embeddings : b.embeddings};
  }
};

/// Infinite where a number is none. Of all zeroes expected, the norm of what is given.
[[nodiscard]] double relative_error(std::span<const float> given, std::span<const float> expected);

/// What an encoder in this type must keep: 1e-5 for f32, 1e-2 for f16 and bf16.
[[nodiscard]] constexpr double error_bound(DType dtype) noexcept { return dtype == DType::f32 ? 1e-5 : 1e-2; }

struct CaseReport {
  std::uint32_t length = 0;
  Errors batched;  ///< As a row of one request with all cases.
  Bucket bucket;   ///< The smallest that takes the case alone.
  Errors alone;
};

/// The lengths that requests are padded to: 16, 32 and so on, and the model's own.
[[nodiscard]] std::uint32_t sequence_bucket(std::uint32_t length, std::uint32_t positions) noexcept;

/// Runs all cases in one request, and each alone. The encoder is built for a bucket that takes all of them. Errors:
/// those of weft.
[[nodiscard]] std::vector<CaseReport> check(const Encoder& encoder, const Cases& cases);

/// A bucket that takes all cases in one request, and each alone.
[[nodiscard]] Bucket largest_bucket(const Cases& cases, std::uint32_t positions) noexcept;

}  // namespace weft::encoder
