#include "logging.h"
#include "refusal.h"
#include <weft/error.h>
#include <weft/log.h>

#include <condition_variable>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <pthread.h>
#include <utility>

namespace weft {

namespace {

/// A sink and the calls of it that have not returned.
struct Installed {
  explicit Installed(LogSink installed) noexcept : sink(std::move(installed)) {}
  const LogSink sink;
  std::uint32_t calls = 0;               // Guarded by Registry::mutex, as are all handles to this.
  std::shared_ptr<Installed> inherited;  // See Registry::inherited.
};

struct Registry {
  std::mutex mutex;
  std::condition_variable returned;      // A call of a sink that was replaced.
  std::shared_ptr<Installed> current;    // Guarded by mutex.
  std::shared_ptr<Installed> inherited;  // Of the process that this is a child of; kept, and never called or destroyed.
};

Registry* make_registry();

Registry& registry() {
  static Registry* const instance = make_registry();  // Never destroyed: threads may log while the process ends.
  return *instance;
}

thread_local bool in_sink = false;

/// Marks the thread as one that a sink runs on, or that destroys one.
class SinkScope {
 public:
  SinkScope() noexcept : outer_(std::exchange(in_sink, true)) {}
  SinkScope(const SinkScope&) = delete;
  SinkScope& operator=(const SinkScope&) = delete;
  ~SinkScope() { in_sink = outer_; }
  /// Whether it was one already.
  [[nodiscard]] bool is_inner() const noexcept { return outer_; }

 private:
  bool outer_;
};

void be_silent() noexcept { detail::least_logged.store(detail::kLogsNothing, std::memory_order_relaxed); }

// Held over a fork, so that a child finds the registry whole. No sink runs with it held.
void lock_for_fork() { registry().mutex.lock(); }
void unlock_in_parent() { registry().mutex.unlock(); }

// The parent's sink may have locks that are held by threads which are gone.
void unlock_in_child() {
  be_silent();
  Registry& all = registry();
  if (all.current != nullptr) {
    all.current->inherited = std::move(all.inherited);
    all.inherited = std::move(all.current);
  }
  all.mutex.unlock();
}

Registry* make_registry() {
  auto made = std::make_unique<Registry>();
  if (::pthread_atfork(&lock_for_fork, &unlock_in_parent, &unlock_in_child) != 0 || std::atexit(&be_silent) != 0)
    throw Error(ErrorCode::out_of_memory, "The process has no memory left to watch for a fork and for its exit.");
  return made.release();
}

std::shared_ptr<Installed> enter() noexcept {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (all.current != nullptr) ++all.current->calls;
  return all.current;
}

/// With the lock held: gives a handle up, and returns it if it was the last, to be destroyed outside the lock.
std::shared_ptr<Installed> give_up(std::shared_ptr<Installed> installed) noexcept {
  if (installed.use_count() > 1) installed.reset();
  return installed;
}

void leave(std::shared_ptr<Installed> installed) noexcept {
  std::shared_ptr<Installed> last;
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  if (--installed->calls == 0) all.returned.notify_all();
  last = give_up(std::move(installed));
}

}  // namespace

std::string_view to_string(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::debug:
      return "debug";
    case LogLevel::info:
      return "info";
    case LogLevel::warning:
      return "warning";
    case LogLevel::error:
      return "error";
  }
  return "unknown";
}

void set_log_sink(LogSink sink, LogLevel least) {
  require_enumerator("least level of the log", least, LogLevel::error);
  std::shared_ptr<Installed> next;
  if (sink) next = std::make_shared<Installed>(std::move(sink));
  const std::uint8_t threshold = next == nullptr ? detail::kLogsNothing : static_cast<std::uint8_t>(least);
  const SinkScope scope;  // The sink before may be destroyed here.
  std::shared_ptr<Installed> last;
  Registry& all = registry();
  std::unique_lock lock(all.mutex);
  std::shared_ptr<Installed> before = std::exchange(all.current, std::move(next));
  detail::least_logged.store(threshold, std::memory_order_relaxed);
  if (before == nullptr) return;
  // A sink that waited here would wait for itself.
  if (!scope.is_inner()) all.returned.wait(lock, [&] { return before->calls == 0; });
  last = give_up(std::move(before));
}

void detail::log(LogLevel level, std::string_view object, std::string_view message) noexcept {
  const SinkScope scope;  // Also while a sink is destroyed behind its last call.
  if (scope.is_inner()) return;
  std::shared_ptr<Installed> installed = enter();
  if (installed == nullptr) return;
  try {
    installed->sink({level, object, message, std::chrono::system_clock::now()});
  } catch (...) {  // The sink's own failure has nowhere to go.
  }
  leave(std::move(installed));
}

}  // namespace weft
