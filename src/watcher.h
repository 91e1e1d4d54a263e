#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>

namespace weft {

/// What the watcher looks at until it is over.
class Watch {
 public:
  Watch() = default;
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;
  virtual ~Watch() = default;

  /// True when it is over: it is destroyed then. `ask` when it is time to ask the device what is wrong. What it throws
  /// is counted and ends it. Called on the watcher's thread.
  virtual bool look(bool ask) = 0;
};

/// One thread that looks after what nobody waits for: callbacks, coroutines, waiters for a slot, and launches that wait
/// for the host. It starts with the first of them. Thread-safe.
///
/// Each watch keeps the context, so that the context's end finds none left: it then ends the thread. When the last
/// handle of a context goes on that thread itself, the thread ends alone. Once the process is not running any more it
/// looks at nothing.
class Watcher {
 public:
  Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  ~Watcher();

  /// Errors, and the watch is destroyed unlooked at, under no lock: `out_of_memory` when no thread can be started;
  /// `device_lost` when the process is not running any more.
  void add(std::unique_ptr<Watch> watch);
  /// Has the thread look at once, if there is one.
  void wake() noexcept;

  /// What callbacks threw so far.
  [[nodiscard]] std::uint64_t caught() const noexcept;

 private:
  struct State;
  /// A list, so that a watch made in good time can change hands where nothing may fail.
  using Watches = std::list<std::unique_ptr<Watch>>;

  static void run(const std::shared_ptr<State>& state);
  /// Lets go of the watches that are over; whether there was one.
  static bool look(State& state, Watches& watches, bool ask) noexcept;

  std::shared_ptr<State> state_;  // The thread's, too.
};

}  // namespace weft
