#include "serving/socket.h"

#include <weft/error.h>

#include <spdlog/fmt/fmt.h>

#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include <utility>

namespace weft::serving {

namespace {

void require(int result, const char* action) {
  if (result < 0)
    throw Error(ErrorCode::io, fmt::format("The system refuses to {}: {}.", action, std::strerror(errno)));
}

Descriptor make_socket() { return {::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), "make a socket"}; }

sockaddr_in local(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

/// Calls `step` with what is left of `bytes`, until nothing is.
template <class Byte, class Step>
bool transfer(std::span<Byte> bytes, Step&& step) {
  while (!bytes.empty()) {
    const ssize_t moved = step(bytes);
    if (moved < 0 && errno == EINTR) continue;
    if (moved <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(moved));
  }
  return true;
}

}  // namespace

Descriptor::Descriptor(int fd, const char* action) : fd_(fd) { require(fd, action); }

Descriptor::Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  Descriptor taken(std::move(other));
  std::swap(fd_, taken.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Descriptor listen_local(std::uint16_t port) {
  constexpr int kBacklog = 128;
  Descriptor listener = make_socket();
  const sockaddr_in address = local(port);
  require(::bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), "bind the port");
  require(::listen(listener.fd(), kBacklog), "listen");
  return listener;
}

std::uint16_t port_of(const Descriptor& listener) {
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  require(::getsockname(listener.fd(), reinterpret_cast<sockaddr*>(&address), &size), "tell the port");
  return ntohs(address.sin_port);
}

void send_at_once(const Descriptor& socket) {
  const int on = 1;
  require(::setsockopt(socket.fd(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), "send small frames at once");
}

Descriptor connect_local(std::uint16_t port, std::uint32_t patience_seconds) {
  Descriptor socket = make_socket();
  const timeval patience{static_cast<time_t>(patience_seconds), 0};
  for (const int direction : {SO_RCVTIMEO, SO_SNDTIMEO})
    require(::setsockopt(socket.fd(), SOL_SOCKET, direction, &patience, sizeof(patience)), "limit a wait");
  send_at_once(socket);
  const sockaddr_in address = local(port);
  require(::connect(socket.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), "connect");
  return socket;
}

bool send_all(const Descriptor& socket, std::span<const std::byte> bytes) {
  return transfer(bytes, [&](std::span<const std::byte> rest) {
    return ::send(socket.fd(), rest.data(), rest.size(), MSG_NOSIGNAL);
  });
}

bool receive_all(const Descriptor& socket, std::span<std::byte> bytes) {
  return transfer(bytes, [&](std::span<std::byte> rest) { return ::recv(socket.fd(), rest.data(), rest.size(), 0); });
}

}  // namespace weft::serving
