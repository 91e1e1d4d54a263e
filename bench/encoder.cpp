#include "encoder.h"

#include "encoder/check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

namespace weft::bench {

namespace {

/// Makes the rows of a batch that begins with case `first`.
template <class T>
void rotate_rows(const std::vector<T>& rows, std::size_t count, std::size_t first, std::vector<float>& batch) {
  static_assert(sizeof(T) == sizeof(float));
  const std::size_t width = rows.size() / count;
  batch.resize(rows.size());
  for (std::size_t i = 0; i < count; ++i)
    std::memcpy(&batch[i * width], &rows[(first + i) % count * width], width * sizeof(float));
}

float tolerance_of(const encoder::Cases& cases, DType dtype) {
  float largest = 0;
  for (const float value : cases.embeddings) largest = std::max(largest, std::abs(value));
  return static_cast<float>(encoder::error_bound(dtype)) * largest;
}

}  // namespace

Exchange encoder_exchange(const encoder::Cases& cases, DType dtype) {
  Exchange exchange(cases.ids.size(), cases.embeddings.size(), tolerance_of(cases, dtype));
  std::vector<float> input;
  std::vector<float> answer;
  for (std::size_t first = 0; first < cases.count; ++first) {
    rotate_rows(cases.ids, cases.count, first, input);
    rotate_rows(cases.embeddings, cases.count, first, answer);
    exchange.add(input, answer);
  }
  return exchange;
}

std::uint64_t layer_weight_bytes(const encoder::Encoder& encoder) {
  const encoder::BertConfig& config = encoder.config();
  const std::uint64_t hidden = config.hidden;
  return config.layers * (4 * hidden * hidden + 2 * hidden * config.intermediate) * size_of(encoder.dtype());
}

std::unique_ptr<WeftRunner> encoder_runner(const encoder::Encoder& encoder, const encoder::Cases& cases,
                                           std::uint32_t slots) {
  PreparedModel model =
      encoder.fragment({cases.count, cases.sequence}, encoder::Results::embeddings).prepare({.slots = slots});
  return std::make_unique<WeftRunner>(
      std::move(model), [lengths = cases.lengths, first = std::size_t{0}](ModelSlot& slot) mutable {
        // As the exchange rotates the rows.
        std::ranges::rotate_copy(lengths, lengths.begin() + static_cast<std::ptrdiff_t>(first),
                                 slot.input<std::int32_t>(encoder::kLengths).begin());
        first = (first + 1) % lengths.size();
        const std::span<std::int32_t> ids = slot.input<std::int32_t>(encoder::kIds);
        return std::span(reinterpret_cast<float*>(ids.data()), ids.size());
      });
}

}  // namespace weft::bench
