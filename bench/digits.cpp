#include "digits.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft::bench {

Exchange digits_exchange(const digits::TestSet& set, std::uint32_t batch) {
  Exchange exchange(batch * set.pixels, batch * set.classes, static_cast<float>(set.tolerance()));
  std::vector<float> input;
  std::vector<float> answer;
  for (std::size_t first = 0; first < std::min(set.rows, kRotation); ++first) {
    input.clear();
    answer.clear();
    for (std::size_t i = 0; i < batch; ++i) {
      const std::span<const float> image = set.image((first + i) % set.rows);
      const std::span<const float> logits = set.reference((first + i) % set.rows);
      input.insert(input.end(), image.begin(), image.end());
      answer.insert(answer.end(), logits.begin(), logits.end());
    }
    exchange.add(input, answer);
  }
  return exchange;
}

}  // namespace weft::bench
