#include "encoder/encode.h"

#include "encoder/elements.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <optional>
#include <utility>

namespace weft::encoder {

namespace {

constexpr std::chrono::minutes kPatience{30};  // The host device takes its time.

void fill(ModelSlot& slot, Bucket bucket, const std::vector<std::span<const std::int32_t>>& sequences) {
  const std::span<std::int32_t> ids = slot.input<std::int32_t>(kIds);
  const std::span<std::int32_t> lengths = slot.input<std::int32_t>(kLengths);
  for (std::size_t row = 0; row < bucket.batch; ++row) {
    const std::span<const std::int32_t> sequence = sequences.at(row);
    const std::span<std::int32_t> padded = ids.subspan(row * bucket.sequence, bucket.sequence);
    std::fill(std::ranges::copy(sequence, padded.begin()).out, padded.end(), 0);
    lengths[row] = static_cast<std::int32_t>(sequence.size());
  }
}

}  // namespace

Encoding encode(PreparedModel& model, Bucket bucket, DType dtype,
                const std::vector<std::span<const std::int32_t>>& sequences) {
  if (sequences.size() != bucket.batch) {
    throw Error(ErrorCode::invalid,
                fmt::format("{} sequences do not fill the bucket {}.", sequences.size(), to_string(bucket)));
  }
  for (const std::span<const std::int32_t> sequence : sequences) {
    if (sequence.size() <= bucket.sequence) continue;
    throw Error(ErrorCode::invalid, fmt::format("A sequence of {} tokens does not fit in the bucket {}.",
                                                sequence.size(), to_string(bucket)));
  }
  std::optional<ModelSlot> slot = model.acquire(std::chrono::steady_clock::now() + kPatience);
  if (!slot) throw Error(ErrorCode::failed, "No slot has become free in half an hour.");
  Inference run = std::move(*slot).submit_host_with([&](ModelSlot& filled) { fill(filled, bucket, sequences); });
  if (!run.wait(std::chrono::steady_clock::now() + kPatience))
    throw Error(ErrorCode::failed, "A request has not finished in half an hour.");
  const std::span<const float> embeddings = run.output<float>(kEmbeddings);
  return {{embeddings.begin(), embeddings.end()},
          with_element(dtype, [&]<class T>(T) { return to_floats(std::as_bytes(run.output<T>(kStates)), dtype); })};
}

}  // namespace weft::encoder
