#pragma once

#include <cstdint>

// What clients and the server say over TCP: a header and its floats, one frame for each request and each reply, in the
// byte order of the machine (both ends are on it). Replies come in any order; the id tells whose they are.

namespace weft::serving {

/// What becomes of a request; after HTTP's.
enum class Status : std::uint32_t {
  answered = 200,
  failed = 500,
  shed = 503,  ///< Refused at once: the queue is full, the deadline cannot be met, or the server shuts down.
  late = 504,  ///< Accepted, and its deadline passed first.
};

struct RequestHeader {
  std::uint64_t id = 0;           ///< The client's own.
  std::uint32_t patience_us = 0;  ///< From its arrival to its deadline. Clocks of two machines differ.
  /// That follow: the image. None asks whether the server is ready, which `answered` says it is, and `shed` that it is
  /// not.
  std::uint32_t floats = 0;
};

struct ReplyHeader {
  std::uint64_t id = 0;
  Status status = Status::failed;
  std::uint32_t floats = 0;  ///< That follow: the logits when it was answered, else none.
};

}  // namespace weft::serving
