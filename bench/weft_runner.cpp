#include "weft_runner.h"

#include <weft/error.h>

#include <chrono>
#include <utility>

namespace weft::bench {

namespace {

constexpr std::chrono::minutes kPatience{30};

}  // namespace

WeftRunner::WeftRunner(PreparedModel model, Input input)
    : model_(std::move(model)),
      input_(std::move(input)),
      deadline_(std::chrono::steady_clock::now() + kPatience),
      ring_(model_.slots()) {}

std::span<float> WeftRunner::acquire() {
  acquired_ = model_.acquire(deadline_);
  if (!acquired_) throw Error(ErrorCode::failed, "No slot came free within half an hour.");
  return input_(*acquired_);
}

void WeftRunner::submit() {
  ring_[next_].emplace(std::move(*acquired_).submit());
  next_ = next_ + 1 == ring_.size() ? 0 : next_ + 1;
}

std::span<const float> WeftRunner::wait() {
  Inference& inference = *ring_[oldest_];
  if (!inference.wait(deadline_)) throw Error(ErrorCode::failed, "A request did not finish within half an hour.");
  return inference.output<float>(0);
}

void WeftRunner::release() {
  ring_[oldest_].reset();
  oldest_ = oldest_ + 1 == ring_.size() ? 0 : oldest_ + 1;
}

}  // namespace weft::bench
