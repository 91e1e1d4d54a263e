#include "serving/frontend.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <poll.h>
#include <span>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace weft::serving {

namespace {

constexpr std::size_t kMostConnections = 256;
constexpr std::size_t kMostUnsent = std::size_t{1} << 20;  // A client that takes no replies is read no further.

sigset_t signals_to_take() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  return signals;
}

template <class T>
void append(std::vector<std::byte>& bytes, std::span<const T> values) {
  const auto added = std::as_bytes(values);
  bytes.insert(bytes.end(), added.begin(), added.end());
}

/// Whether a call that would not wait has failed only because it would have to.
bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

/// A client. Requests keep it; `reply` is thread-safe, all else belongs to the frontend's thread.
class Frontend::Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(Descriptor socket, std::shared_ptr<const Descriptor> wake, std::uint32_t floats)
      : socket_(std::move(socket)), wake_(std::move(wake)), floats_(floats) {}

  [[nodiscard]] int fd() const noexcept { return socket_.fd(); }

  [[nodiscard]] short events() const {
    const std::lock_guard lock(mutex_);
    return static_cast<short>((unsent_.empty() ? 0 : POLLOUT) | (unsent_.size() < kMostUnsent ? POLLIN : 0));
  }

  void reply(std::uint64_t id, Status status, std::span<const float> logits) {
    const ReplyHeader header{id, status, static_cast<std::uint32_t>(logits.size())};
    const std::lock_guard lock(mutex_);
    append(unsent_, std::span(&header, 1));
    append(unsent_, logits);
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t told = ::write(wake_->fd(), &one, sizeof(one));  // Fails once it says so already.
  }

  /// Takes what has come, or throws it away without `take`; false when the client is gone or says something else than
  /// requests.
  bool receive(const std::function<void(Request)>& take) {
    std::array<std::byte, 1 << 16> chunk;
    const ssize_t got = ::recv(fd(), chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got <= 0) return got < 0 && would_wait();
    if (take == nullptr) return true;
    append(received_, std::span<const std::byte>(chunk.data(), static_cast<std::size_t>(got)));
    std::size_t used = 0;
    while (received_.size() - used >= sizeof(RequestHeader)) {
      RequestHeader header;
      std::memcpy(&header, received_.data() + used, sizeof(header));
      if (header.floats != floats_ && header.floats != 0) return false;
      const std::size_t frame = sizeof(RequestHeader) + header.floats * sizeof(float);
      if (received_.size() - used < frame) break;
      take(request_of(header, received_.data() + used + sizeof(header)));
      used += frame;
    }
    received_.erase(received_.begin(), received_.begin() + static_cast<std::ptrdiff_t>(used));
    return true;
  }

  /// Tells the client that nothing follows, once all is sent.
  void end_when_sent() {
    const std::lock_guard lock(mutex_);
    if (unsent_.empty()) static_cast<void>(::shutdown(fd(), SHUT_WR));
  }

  /// Sends what the system takes now; false when the client is gone.
  bool send() {
    const std::lock_guard lock(mutex_);
    const ssize_t sent = ::send(fd(), unsent_.data(), unsent_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) return would_wait();
    unsent_.erase(unsent_.begin(), unsent_.begin() + sent);
    return true;
  }

 private:
  [[nodiscard]] Request request_of(const RequestHeader& header, const std::byte* image) {
    const Clock::time_point now = Clock::now();
    Request request{std::vector<float>(header.floats), now, now + std::chrono::microseconds(header.patience_us),
                    [client = shared_from_this(), id = header.id](Status status, std::span<const float> logits) {
                      client->reply(id, status, logits);
                    }};
    if (header.floats > 0) std::memcpy(request.image.data(), image, header.floats * sizeof(float));
    return request;
  }

  const Descriptor socket_;
  const std::shared_ptr<const Descriptor> wake_;
  const std::uint32_t floats_;
  std::vector<std::byte> received_;
  mutable std::mutex mutex_;
  std::vector<std::byte> unsent_;  // Guarded by mutex_.
};

Frontend::Frontend(std::uint16_t port, std::uint32_t floats)
    : floats_(floats),
      wake_(std::make_shared<const Descriptor>(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), "make an event")),
      listener_(listen_local(port)) {
  const sigset_t signals = signals_to_take();
  signals_ = Descriptor(::signalfd(-1, &signals, SFD_CLOEXEC), "hand signals over");
}

Frontend::~Frontend() = default;

void Frontend::serve(const std::function<void(Request)>& take) {
  while (look(std::chrono::hours(1), take)) {
  }
  listener_ = {};  // New clients are refused from here on.
}

bool Frontend::close(Deadline deadline) {
  while (!connections_.empty()) {
    if (Clock::now() >= deadline) return false;
    for (const auto& connection : connections_) connection->end_when_sent();
    static_cast<void>(look(std::chrono::milliseconds(10), nullptr));
  }
  return true;
}

bool Frontend::look(std::chrono::milliseconds patience, const std::function<void(Request)>& take) {
  const bool has_room = take != nullptr && connections_.size() < kMostConnections;
  std::vector<pollfd> looks{{take != nullptr ? signals_.fd() : -1, POLLIN, 0},
                            {wake_->fd(), POLLIN, 0},
                            {has_room ? listener_.fd() : -1, POLLIN, 0}};
  std::size_t next = looks.size();
  for (const auto& connection : connections_) looks.push_back({connection->fd(), connection->events(), 0});
  if (::poll(looks.data(), looks.size(), static_cast<int>(patience.count())) < 0) return errno == EINTR;
  std::uint64_t replies = 0;
  [[maybe_unused]] const ssize_t told = ::read(wake_->fd(), &replies, sizeof(replies));  // Fails where there are none.
  std::erase_if(connections_, [&](const std::shared_ptr<Connection>& connection) {
    const short events = looks[next++].revents;
    if ((events & POLLOUT) != 0 && !connection->send()) return true;
    return (events & (POLLIN | POLLHUP | POLLERR)) != 0 && !connection->receive(take);
  });
  if (looks[2].revents != 0) accept();
  return looks[0].revents == 0;
}

void Frontend::accept() {
  const int fd = ::accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;  // The client is gone again, or the process is out of descriptors.
  Descriptor socket(fd, "accept");
  send_at_once(socket);
  connections_.push_back(std::make_shared<Connection>(std::move(socket), wake_, floats_));
}

void block_signals() {
  const sigset_t signals = signals_to_take();
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace weft::serving
