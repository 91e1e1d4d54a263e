#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace weft::bench {

/// Requests in rotation, with the answers that they must give.
class Exchange {
 public:
  /// `tolerance` is the largest difference of an answer's element; 0 asks for the same bits.
  Exchange(std::size_t input_floats, std::size_t answer_floats, float tolerance);

  void add(std::span<const float> input, std::span<const float> answer);

  void fill(std::size_t request, std::span<float> input) const;
  [[nodiscard]] bool matches(std::size_t request, std::span<const float> answer) const;

  [[nodiscard]] std::size_t input_floats() const noexcept { return input_floats_; }
  [[nodiscard]] std::size_t answer_floats() const noexcept { return answer_floats_; }

 private:
  std::size_t input_floats_;
  std::size_t answer_floats_;
  float tolerance_;
  std::size_t count_ = 0;
  std::vector<float> inputs_;
  std::vector<float> answers_;
};

/// How many requests rotate where there is a choice: prime, so that a slot meets other bytes each time, whatever the
/// number of slots.
inline constexpr std::size_t kRotation = 257;

}  // namespace weft::bench
