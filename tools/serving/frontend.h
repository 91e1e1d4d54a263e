#pragma once

#include "serving/batcher.h"
#include "serving/socket.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace weft::serving {

/// The server's sockets: one thread reads requests and sends replies, over any number of connections and without ever
/// waiting for one of them.
class Frontend {
 public:
  /// Listens on a port of 127.0.0.1, one of the system's choice for 0, for images of this number of floats. Takes
  /// SIGTERM and SIGINT, which the program has blocked before its first thread. Errors: `io`.
  Frontend(std::uint16_t port, std::uint32_t floats);
  Frontend(const Frontend&) = delete;
  Frontend& operator=(const Frontend&) = delete;
  ~Frontend();

  [[nodiscard]] std::uint16_t port() const { return port_of(listener_); }

  /// Calls `take` for each request, until a signal comes. Requests may be answered by any thread, also later.
  void serve(const std::function<void(Request)>& take);
  /// Sends what is still to be sent and waits for the clients to hang up; false when the deadline passed first. Behind
  /// the last reply a client reads the end of the stream; what it still sends is not taken.
  bool close(Deadline deadline);

 private:
  class Connection;
  /// One look at all sockets; false when a signal came. Without `take` nothing is taken any more.
  bool look(std::chrono::milliseconds patience, const std::function<void(Request)>& take);
  void accept();

  const std::uint32_t floats_;
  Descriptor signals_;
  std::shared_ptr<const Descriptor> wake_;  // Counts up when a reply waits; connections share it.
  Descriptor listener_;
  std::vector<std::shared_ptr<Connection>> connections_;
};

/// Blocks the signals that a Frontend takes, in this thread and those that it starts.
void block_signals();

}  // namespace weft::serving
