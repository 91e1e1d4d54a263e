#pragma once

#include "digits/test_set.h"
#include "support/percentiles.h"

#include <cstddef>
#include <cstdint>
#include <deque>

namespace weft::serving {

struct LoadOptions {
  std::uint16_t port = 0;                 ///< Of 127.0.0.1.
  std::size_t requests = 2000;            ///< Over all connections.
  std::size_t connections = 4;            ///< Each has a thread.
  std::size_t in_flight = 16;             ///< Of each connection.
  std::uint32_t patience_us = 1'000'000;  ///< Deadline of each request.
  std::uint32_t seconds = 30;             ///< Longest wait for a reply.
};

/// What became of requests. Each that was sent counts once.
struct LoadReport {
  std::size_t sent = 0;
  std::size_t answered = 0;
  std::size_t shed = 0;
  std::size_t late = 0;
  std::size_t failed = 0;
  std::size_t lost = 0;           ///< Without a reply.
  std::size_t wrong = 0;          ///< Answered with other logits than the test set's, or not asked for.
  std::size_t correct = 0;        ///< Answered with the image's label as the largest logit.
  tools::Percentiles latency_us;  ///< Of answered ones, from their sending.
};

/// Clients of a server.
class Load {
 public:
  /// Connects. `set` and `options` outlive this object. Errors: `io` when the server cannot be reached.
  Load(const digits::TestSet& set, const LoadOptions& options);
  ~Load();

  /// Sends images of the test set in turn and checks every reply. Once.
  [[nodiscard]] LoadReport run();

 private:
  class Client;
  std::deque<Client> clients_;
};

}  // namespace weft::serving
