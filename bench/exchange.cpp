#include "exchange.h"

#include <cmath>
#include <cstring>

namespace weft::bench {

Exchange::Exchange(std::size_t input_floats, std::size_t answer_floats, float tolerance)
    : input_floats_(input_floats), answer_floats_(answer_floats), tolerance_(tolerance) {}

void Exchange::add(std::span<const float> input, std::span<const float> answer) {
  inputs_.insert(inputs_.end(), input.begin(), input.end());
  answers_.insert(answers_.end(), answer.begin(), answer.end());
  ++count_;
}

void Exchange::fill(std::size_t request, std::span<float> input) const {
  std::memcpy(input.data(), &inputs_[request % count_ * input_floats_], input_floats_ * sizeof(float));
}

bool Exchange::matches(std::size_t request, std::span<const float> answer) const {
  const float* expected = &answers_[request % count_ * answer_floats_];
  if (tolerance_ == 0) return std::memcmp(answer.data(), expected, answer_floats_ * sizeof(float)) == 0;
  std::size_t wrong = 0;
  // Written so that a NaN is wrong, and without a branch for each element.
  for (std::size_t i = 0; i < answer_floats_; ++i) wrong += std::abs(answer[i] - expected[i]) <= tolerance_ ? 0u : 1u;
  return wrong == 0;
}

}  // namespace weft::bench
