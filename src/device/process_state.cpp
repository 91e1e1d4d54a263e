#include "device/process_state.h"

#include <weft/error.h>

#include <cstdlib>
#include <pthread.h>

namespace weft {

namespace {

constinit std::atomic<std::uint64_t> openings{0};

void enter_child() {
  if (openings.load() != 0) detail::process_state.store(ProcessState::forked);
}

void begin_exit() {
  ProcessState running = ProcessState::running;  // A child stays forked.
  detail::process_state.compare_exchange_strong(running, ProcessState::exiting);
}

void require_registered(int error, const char* sentence) {
  if (error != 0) throw Error(ErrorCode::out_of_memory, sentence);
}

}  // namespace

DeviceStatus process_status() noexcept {
  switch (process_state()) {
    case ProcessState::running:
      break;
    case ProcessState::exiting:
      return {StatusCode::device_lost, 0, "the process is exiting"};
    case ProcessState::forked:
      return {StatusCode::device_lost, 0, "the process was forked after a device was opened"};
  }
  return {};
}

DeviceOpening::DeviceOpening() {
  static const int registered = ::pthread_atfork(nullptr, nullptr, &enter_child);
  require_registered(registered, "The process has no memory left to watch for a fork.");
  ++openings;
}

DeviceOpening::~DeviceOpening() {
  if (!succeeded_) --openings;
}

void DeviceOpening::succeed() {
  static const int registered = std::atexit(&begin_exit);
  require_registered(registered, "The process has no memory left to watch for its exit.");
  succeeded_ = true;
}

}  // namespace weft
