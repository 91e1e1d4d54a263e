#include "serving/load.h"

#include "serving/protocol.h"
#include "serving/socket.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <optional>
#include <span>
#include <thread>
#include <utility>
#include <vector>

namespace weft::serving {

namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

/// One connection and its part of the requests.
class Load::Client {
 public:
  Client(const digits::TestSet& set, const LoadOptions& options, std::size_t first, std::size_t count)
      : set_(set),
        options_(options),
        socket_(connect_local(options.port, options.seconds)),
        first_(first),
        sent_at_(count) {}

  void run() {
    std::size_t pending = 0;
    while (report.sent < sent_at_.size() || pending > 0) {
      if (report.sent < sent_at_.size() && pending < options_.in_flight) {
        if (!send()) break;
        ++pending;
      } else {
        if (!receive()) break;
        --pending;
      }
    }
    report.lost = report.sent - report.answered - report.shed - report.late - report.failed;
  }

  LoadReport report;
  std::vector<std::chrono::nanoseconds> latencies;

 private:
  [[nodiscard]] std::size_t row(std::uint64_t id) const { return (first_ + id) % set_.rows; }

  bool send() {
    const std::uint64_t id = report.sent;
    const std::span<const float> image = set_.image(row(id));
    const RequestHeader header{id, options_.patience_us, static_cast<std::uint32_t>(image.size())};
    sent_at_[id] = Clock::now();
    if (!send_all(socket_, std::as_bytes(std::span(&header, 1))) || !send_all(socket_, std::as_bytes(image)))
      return false;
    ++report.sent;
    return true;
  }

  bool receive() {
    ReplyHeader header;
    if (!receive_all(socket_, std::as_writable_bytes(std::span(&header, 1)))) return false;
    const bool is_asked = header.id < report.sent && sent_at_[header.id].has_value();
    const bool is_answered = header.status == Status::answered;
    if (!is_asked || header.floats != (is_answered ? set_.classes : 0)) {
      ++report.wrong;
      return false;  // What follows cannot be told apart.
    }
    std::vector<float> logits(header.floats);
    if (!receive_all(socket_, std::as_writable_bytes(std::span(logits)))) return false;
    const auto sent_at = std::exchange(sent_at_[header.id], {});
    ++counter(header.status);
    if (is_answered) {
      latencies.push_back(Clock::now() - *sent_at);
      check(row(header.id), logits);
    }
    return true;
  }

  std::size_t& counter(Status status) {
    switch (status) {
      case Status::answered:
        return report.answered;
      case Status::shed:
        return report.shed;
      case Status::late:
        return report.late;
      default:
        return report.failed;
    }
  }

  void check(std::size_t row, const std::vector<float>& logits) {
    const std::span<const float> reference = set_.reference(row);
    const double tolerance = set_.tolerance();
    // A NaN is no answer either.
    const auto is_close = [&](float a, float b) {
      return std::abs(static_cast<double>(a) - static_cast<double>(b)) <= tolerance;
    };
    if (!std::ranges::equal(logits, reference, is_close)) ++report.wrong;
    if (std::ranges::max_element(logits) - logits.begin() == set_.labels[row]) ++report.correct;
  }

  const digits::TestSet& set_;
  const LoadOptions& options_;
  const Descriptor socket_;
  const std::size_t first_;
  std::vector<std::optional<Clock::time_point>> sent_at_;  // By id; empty again once there is a reply.
};

Load::Load(const digits::TestSet& set, const LoadOptions& options) {
  for (std::size_t i = 0; i < options.connections; ++i) {
    const std::size_t begin = options.requests * i / options.connections;
    const std::size_t end = options.requests * (i + 1) / options.connections;
    clients_.emplace_back(set, options, begin, end - begin);
  }
}

Load::~Load() = default;

LoadReport Load::run() {
  {
    std::vector<std::jthread> threads;
    for (Client& client : clients_) threads.emplace_back([&client] { client.run(); });
  }
  LoadReport total;
  std::vector<std::chrono::nanoseconds> latencies;
  for (const Client& client : clients_) {
    const LoadReport& part = client.report;
    for (const auto count : {&LoadReport::sent, &LoadReport::answered, &LoadReport::shed, &LoadReport::late,
                             &LoadReport::failed, &LoadReport::lost, &LoadReport::wrong, &LoadReport::correct})
      total.*count += part.*count;
    latencies.insert(latencies.end(), client.latencies.begin(), client.latencies.end());
  }
  total.latency_us = tools::percentiles(std::move(latencies));
  return total;
}

}  // namespace weft::serving
