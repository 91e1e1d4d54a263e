#include "measure.h"

#include "support/percentiles.h"
#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <chrono>
#include <utility>
#include <vector>

namespace weft::bench {

namespace {

using Clock = std::chrono::steady_clock;
using Durations = std::vector<std::chrono::nanoseconds>;

}  // namespace

struct Meter::Times {
  Durations latency;
  Durations round_trip;
  Durations submit_cpu;
};

Meter::Meter(std::string name, Runner& runner, const Exchange& exchange)
    : name_(std::move(name)), runner_(runner), exchange_(exchange) {}

Sample Meter::measure(const Volume& volume) {
  // The first requests after the other side's turn find cold caches.
  Times unused;
  measure_latency(volume.latency_requests / 10 + 1, unused);
  Times times;
  measure_latency(volume.latency_requests, times);
  const tools::Percentiles latency = tools::percentiles(std::move(times.latency));
  const tools::Percentiles round_trip = tools::percentiles(std::move(times.round_trip));
  const tools::Percentiles submit_cpu = tools::percentiles(std::move(times.submit_cpu));
  return {latency.p50,    latency.p90,    latency.p99,    round_trip.p50, round_trip.p90,
          round_trip.p99, submit_cpu.p50, submit_cpu.p90, submit_cpu.p99, measure_throughput(volume)};
}

void Meter::require_answers(std::size_t requests) {
  for (std::size_t i = 0; i < requests; ++i) {
    start();
    finish();
  }
}

void Meter::measure_latency(std::size_t requests, Times& times) {
  for (Durations* durations : {&times.latency, &times.round_trip, &times.submit_cpu}) durations->reserve(requests);
  for (std::size_t i = 0; i < requests; ++i) {
    const Clock::time_point begin = Clock::now();
    const std::span<float> input = runner_.acquire();
    const Clock::time_point acquired = Clock::now();
    exchange_.fill(started_++, input);
    const Clock::time_point filled = Clock::now();
    runner_.submit();
    const Clock::time_point submitted = Clock::now();
    const std::span<const float> answer = runner_.wait();
    const Clock::time_point answered = Clock::now();
    require_match(answer);
    const Clock::time_point checked = Clock::now();
    runner_.release();
    times.latency.push_back(answered - filled);
    times.round_trip.push_back(checked - begin);
    times.submit_cpu.push_back((acquired - begin) + (submitted - filled));
  }
}

double Meter::measure_throughput(const Volume& volume) {
  const Clock::time_point begin = Clock::now();
  for (std::size_t i = 0; i < volume.throughput_requests; ++i) {
    if (started_ - finished_ == volume.in_flight) finish();
    start();
  }
  while (finished_ != started_) finish();
  return static_cast<double>(volume.throughput_requests) / std::chrono::duration<double>(Clock::now() - begin).count();
}

void Meter::start() {
  exchange_.fill(started_++, runner_.acquire());
  runner_.submit();
}

void Meter::finish() {
  require_match(runner_.wait());
  runner_.release();
}

void Meter::require_match(std::span<const float> answer) {
  if (!exchange_.matches(finished_, answer)) {
    throw Error(ErrorCode::failed,
                fmt::format("The answer of {} to request {} is wrong; a run with a wrong answer has no figures.", name_,
                            finished_));
  }
  ++finished_;
}

}  // namespace weft::bench
