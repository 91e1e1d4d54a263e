#pragma once

#include "device/host/host_graph.h"

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <span>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

namespace weft {

/// Gives an allocation back once its turn has come.
struct FreeMemory {
  DeviceAddress base = 0;
};

/// What an operation does. Nothing at all for a join, which only gathers what stands before it.
using Action = std::variant<std::monostate, std::shared_ptr<const BoundNode>, FreeMemory>;

/// One operation of a host device: an action and how many operations it still waits for. Used by HostExecutor alone.
class HostOperation {
 public:
  explicit HostOperation(Action action) : action_(std::move(action)) {}

 private:
  friend class HostExecutor;
  Action action_;
  std::uint64_t order_ = 0;  ///< Position in the order of submission.
  std::size_t unfinished_ = 0;
  bool finished_ = false;
  std::vector<std::shared_ptr<HostOperation>> followers_;
};

using HostOperationRef = std::shared_ptr<HostOperation>;

/// Runs operations on one worker thread, each after those that it follows.
///
/// The worker takes the earliest submitted of the ready operations, or in shuffled order one drawn from a seed. All
/// streams and executables of a device share it, so that nothing but what operations follow orders them. The thread
/// starts with the first submission. Thread-safe.
class HostExecutor {
 public:
  struct Submission {
    HostOperationRef operation;
    std::vector<HostOperationRef>
        after;  ///< Submitted earlier, or earlier in the same call. Null entries count as finished.
  };

  HostExecutor(bool shuffled, std::uint64_t seed, std::function<void(const Action&)> run);
  HostExecutor(const HostExecutor&) = delete;
  HostExecutor& operator=(const HostExecutor&) = delete;
  /// Runs what is queued, even when held.
  ~HostExecutor();

  /// Queues all of them at once: the worker sees none or all.
  void submit(std::span<const Submission> submissions);
  [[nodiscard]] bool is_finished(const HostOperationRef& operation) const;
  /// Whether a join waits for nothing but the operation that is being run right now: what that one does may be seen
  /// before it has finished.
  [[nodiscard]] bool is_finishing(const HostOperationRef& join) const;
  void wait(const HostOperationRef& operation);
  /// Whether an operation that is queued or running has an action of this kind.
  [[nodiscard]] bool any_unfinished(const std::function<bool(const Action&)>& predicate) const;
  [[nodiscard]] std::size_t unfinished() const;
  /// Drops all that is queued; waiters wake.
  void abandon() noexcept;

  /// The worker takes no more operations; returns when it runs none.
  void hold();
  /// While held: runs up to `count` operations one after the other, fewer when no more get ready. Returns how many ran.
  std::size_t step(std::size_t count);
  void release();
  /// Releases and waits until nothing is queued.
  void drain();

 private:
  void work();
  [[nodiscard]] bool may_take() const noexcept;
  void make_ready(HostOperationRef operation);
  void finish(HostOperationRef operation);

  const bool shuffled_;
  const std::function<void(const Action&)> run_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;      ///< For the worker.
  std::condition_variable progress_;  ///< For those who wait for it.
  std::mt19937_64 random_;
  std::uint64_t submitted_ = 0;
  std::map<std::uint64_t, HostOperationRef> unfinished_;                       ///< By order of submission.
  std::map<std::pair<std::uint64_t, std::uint64_t>, HostOperationRef> ready_;  ///< By drawn priority, then order.
  HostOperationRef current_;                                                   ///< Null when none runs.
  bool held_ = false;
  bool stopping_ = false;
  std::size_t steps_ = 0;
  std::thread worker_;
};

}  // namespace weft
