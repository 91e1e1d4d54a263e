#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::serving {

/// A file descriptor that closes itself. Move-only.
class Descriptor {
 public:
  Descriptor() noexcept = default;
  /// Errors: `io`, for a descriptor that the system did not give; `action` completes "The system refuses to".
  Descriptor(int fd, const char* action);
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();

  [[nodiscard]] int fd() const noexcept { return fd_; }  ///< -1 for none, which poll() passes over.

 private:
  int fd_ = -1;
};

/// A socket that listens on 127.0.0.1, on a port of the system's choice for 0. Errors: `io`.
[[nodiscard]] Descriptor listen_local(std::uint16_t port);
/// The port that it got.
[[nodiscard]] std::uint16_t port_of(const Descriptor& listener);
/// Sends small frames as they come, and not together after a while. Errors: `io`.
void send_at_once(const Descriptor& socket);
/// A connection to a port of 127.0.0.1, on which no call waits longer than this. Errors: `io`.
[[nodiscard]] Descriptor connect_local(std::uint16_t port, std::uint32_t patience_seconds);

/// Sends or receives all of it; false when the other side is gone or the time is up.
[[nodiscard]] bool send_all(const Descriptor& socket, std::span<const std::byte> bytes);
[[nodiscard]] bool receive_all(const Descriptor& socket, std::span<std::byte> bytes);

}  // namespace weft::serving
