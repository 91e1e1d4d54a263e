#include "digits/serve.h"

#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <deque>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace weft::digits {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{60};

class Server {
 public:
  Server(PreparedModel& model, const TestSet& set, std::size_t batch, std::size_t requests)
      : model_(model), set_(set), rotation_(set.rows, batch) {
    report_.requests = std::max(requests, rotation_.requests_per_pass());
    latencies_.reserve(report_.requests);
  }

  ServeReport run(std::size_t in_flight) {
    const Clock::time_point begin = Clock::now();
    for (std::size_t request = 0; request < report_.requests; ++request) {
      if (running_.size() == in_flight) finish_oldest();
      start(request);
    }
    while (!running_.empty()) finish_oldest();
    report_.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    report_.latency_us = tools::percentiles(std::move(latencies_));
    return report_;
  }

 private:
  struct Running {
    std::size_t request;
    Clock::time_point submitted;
    Inference inference;
  };

  void start(std::size_t request) {
    std::optional<ModelSlot> slot = model_.acquire(Clock::now() + kPatience);
    if (!slot) throw Error(ErrorCode::failed, fmt::format("Request {} has found no free slot in a minute.", request));
    const std::span<float> input = slot->input<float>(0);
    auto end = input.begin();
    for (std::size_t i = 0; i < rotation_.count(request); ++i)
      end = std::ranges::copy(set_.image(rotation_.row(request, i)), end).out;
    std::fill(end, input.end(), 0.0f);
    const Clock::time_point submitted = Clock::now();
    running_.push_back({request, submitted, std::move(*slot).submit()});
  }

  void finish_oldest() {
    Running& oldest = running_.front();
    if (!oldest.inference.wait(Clock::now() + kPatience))
      throw Error(ErrorCode::failed, fmt::format("Request {} has not finished in a minute.", oldest.request));
    latencies_.push_back(Clock::now() - oldest.submitted);
    check(oldest.request, oldest.inference.output<float>(0));
    running_.pop_front();
  }

  void check(std::size_t request, std::span<const float> output) {
    for (std::size_t i = 0; i < rotation_.count(request); ++i) {
      const std::size_t row = rotation_.row(request, i);
      const std::span<const float> answer = output.subspan(i * set_.classes, set_.classes);
      compare(answer, set_.reference(row));
      const auto best = std::ranges::max_element(answer) - answer.begin();
      if (rotation_.is_first_pass(request) && best == set_.labels[row]) ++report_.correct;
    }
    report_.images += rotation_.count(request);
  }

  void compare(std::span<const float> answer, std::span<const float> reference) {
    for (std::size_t i = 0; i < answer.size(); ++i) {
      const double error = std::abs(static_cast<double>(answer[i]) - static_cast<double>(reference[i]));
      // A maximum over a number that is none would forget it.
      report_.max_logit_error =
          std::max(report_.max_logit_error, std::isnan(error) ? std::numeric_limits<double>::infinity() : error);
    }
  }

  PreparedModel& model_;
  const TestSet& set_;
  Rotation rotation_;
  std::deque<Running> running_;
  std::vector<std::chrono::nanoseconds> latencies_;
  ServeReport report_;
};

}  // namespace

ServeReport serve(PreparedModel& model, const TestSet& set, std::size_t batch, std::size_t requests,
                  std::size_t in_flight) {
  return Server(model, set, batch, requests).run(in_flight);
}

}  // namespace weft::digits
