#pragma once

#include "digits/test_set.h"
#include "support/percentiles.h"
#include <weft/prepared.h>

#include <cstddef>
#include <cstdint>

namespace weft::digits {

/// Which images a request carries. Passes over all images follow each other, each begun one image later, so that a
/// slot meets other bytes every time; the last request of a pass may be partial.
class Rotation {
 public:
  Rotation(std::size_t rows, std::size_t batch) noexcept : rows_(rows), batch_(batch) {}

  [[nodiscard]] std::size_t requests_per_pass() const noexcept { return (rows_ + batch_ - 1) / batch_; }
  [[nodiscard]] bool is_first_pass(std::size_t request) const noexcept { return request < requests_per_pass(); }
  /// Images of a request.
  [[nodiscard]] std::size_t count(std::size_t request) const noexcept {
    const std::size_t begin = request % requests_per_pass() * batch_;
    return rows_ - begin < batch_ ? rows_ - begin : batch_;
  }
  /// The test set's row of an image of a request.
  [[nodiscard]] std::size_t row(std::size_t request, std::size_t image) const noexcept {
    return (request / requests_per_pass() + request % requests_per_pass() * batch_ + image) % rows_;
  }

 private:
  std::size_t rows_;
  std::size_t batch_;
};

struct ServeReport {
  std::size_t requests = 0;
  std::size_t images = 0;
  std::size_t correct = 0;        ///< Images of the first pass whose largest logit stands at their label.
  double max_logit_error = 0;     ///< Over all answers; infinite when one is not a number.
  tools::Percentiles latency_us;  ///< From submit to the return of wait.
  double seconds = 0;             ///< From the first request to the last answer checked.
};

/// Serves requests from one thread, `in_flight` of them at once, and checks every answer. Serves at least one pass over
/// the images. Errors: those of weft; `failed` when an answer is a minute late.
[[nodiscard]] ServeReport serve(PreparedModel& model, const TestSet& set, std::size_t batch, std::size_t requests,
                                std::size_t in_flight);

}  // namespace weft::digits
