#include "encoder/check.h"

#include "encoder/encode.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <map>

namespace weft::encoder {

namespace {

constexpr std::uint32_t kShortestBucket = 16;

std::span<const std::int32_t> tokens_of(const Cases& cases, std::size_t row) {
  return cases.ids_of(row).first(static_cast<std::size_t>(cases.lengths[row]));
}

/// Holds row `row` of an encoding of sequences of `sequence` tokens against the answers of case `index`.
Errors compare(const Encoding& encoding, std::size_t row, std::size_t sequence, const Cases& cases, std::size_t index) {
  const std::size_t hidden = cases.hidden;
  const std::size_t elements = static_cast<std::size_t>(cases.lengths[index]) * hidden;
  const auto part = [](const std::vector<float>& values, std::size_t from, std::size_t count) {
    return std::span(values).subspan(from, count);
  };
  Errors errors;
  errors.embeddings =
      relative_error(part(encoding.embeddings, row * hidden, hidden), part(cases.embeddings, index * hidden, hidden));
  if (!cases.states.empty()) {
    errors.states = relative_error(part(encoding.states, row * sequence * hidden, elements),
                                   part(cases.states, index * cases.sequence * hidden, elements));
  }
  return errors;
}

}  // namespace

double relative_error(std::span<const float> given, std::span<const float> expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    difference += std::pow(static_cast<double>(given[i]) - static_cast<double>(expected[i]), 2);
    norm += std::pow(static_cast<double>(expected[i]), 2);
  }
  // A maximum over a number that is none would forget it.
  if (!std::isfinite(difference)) return std::numeric_limits<double>::infinity();
  return norm == 0 ? std::sqrt(difference) : std::sqrt(difference / norm);
}

std::uint32_t sequence_bucket(std::uint32_t length, std::uint32_t positions) noexcept {
  std::uint32_t bucket = kShortestBucket;
  while (bucket < length) bucket *= 2;
  return std::min(bucket, positions);
}

Bucket largest_bucket(const Cases& cases, std::uint32_t positions) noexcept {
  // A case alone may be padded beyond what the file has.
  return {cases.count, std::max(cases.sequence, sequence_bucket(cases.sequence, positions))};
}

std::vector<CaseReport> check(const Encoder& encoder, const Cases& cases) {
  std::vector<CaseReport> reports(cases.count);
  std::vector<std::span<const std::int32_t>> sequences;
  for (std::size_t i = 0; i < cases.count; ++i) sequences.push_back(tokens_of(cases, i));

  const Bucket all{cases.count, cases.sequence};
  PreparedModel together = encoder.fragment(all).prepare({.slots = 1});
  const Encoding batch = encode(together, all, encoder.dtype(), sequences);

  std::map<std::uint32_t, PreparedModel> prepared;  // By the bucket's length.
  for (std::size_t i = 0; i < cases.count; ++i) {
    CaseReport& report = reports[i];
    report.length = static_cast<std::uint32_t>(cases.lengths[i]);
    report.batched = compare(batch, i, all.sequence, cases, i);
    report.bucket = {1, sequence_bucket(report.length, encoder.config().positions)};
    auto model = prepared.find(report.bucket.sequence);
    if (model == prepared.end())
      model = prepared.emplace(report.bucket.sequence, encoder.fragment(report.bucket).prepare({.slots = 1})).first;
    report.alone = compare(encode(model->second, report.bucket, encoder.dtype(), {sequences[i]}), 0,
                           report.bucket.sequence, cases, i);
  }
  return reports;
}

}  // namespace weft::encoder
