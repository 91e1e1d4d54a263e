#pragma once

#include "exchange.h"
#include "runner.h"

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace weft::bench {

/// A quantity that is measured.
struct Figure {
  const char* name;
  const char* unit;
  const char* about;
};

/// Of requests.
inline constexpr std::array kRequestFigures{
    Figure{"latency_p50", "us", "one in flight, submit to answer, p50"},
    Figure{"latency_p90", "us", "one in flight, submit to answer, p90"},
    Figure{"latency_p99", "us", "one in flight, submit to answer, p99"},
    Figure{"round_trip_p50", "us", "one in flight, acquire to answer checked, p50"},
    Figure{"round_trip_p90", "us", "one in flight, acquire to answer checked, p90"},
    Figure{"round_trip_p99", "us", "one in flight, acquire to answer checked, p99"},
    Figure{"submit_cpu_p50", "us", "CPU time of acquire and submit, p50"},
    Figure{"submit_cpu_p90", "us", "CPU time of acquire and submit, p90"},
    Figure{"submit_cpu_p99", "us", "CPU time of acquire and submit, p99"},
    Figure{"throughput", "requests_per_s", "all slots in flight, requests/s"},
};

/// One repetition: a value for each figure.
using Sample = std::vector<double>;

struct Volume {
  std::size_t in_flight = 0;
  std::size_t latency_requests = 0;     ///< One in flight.
  std::size_t throughput_requests = 0;  ///< `in_flight` in flight, as soon as a slot is free.
};

/// Measures one side. Requests go on where the last call ended, so that no slot meets the same bytes twice in a row.
class Meter {
 public:
  /// `name` is for messages. Borrows `runner` and `exchange`.
  Meter(std::string name, Runner& runner, const Exchange& exchange);

  /// Values for kRequestFigures. Errors: `failed` for a wrong answer.
  [[nodiscard]] Sample measure(const Volume& volume);
  /// Sends `requests`, one in flight, and times nothing. Errors: as `measure`.
  void require_answers(std::size_t requests);

 private:
  struct Times;
  void measure_latency(std::size_t requests, Times& times);
  [[nodiscard]] double measure_throughput(const Volume& volume);
  void start();
  void finish();
  void require_match(std::span<const float> answer);

  std::string name_;
  Runner& runner_;
  const Exchange& exchange_;
  std::size_t started_ = 0;
  std::size_t finished_ = 0;
};

}  // namespace weft::bench
