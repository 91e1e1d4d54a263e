#pragma once

#include "serving/model.h"
#include "serving/protocol.h"
#include <weft/deadline.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace weft::serving {

using Clock = std::chrono::steady_clock;

struct Request {
  std::vector<float> image;  ///< None: it asks whether requests can be answered.
  Clock::time_point arrived;
  Deadline deadline;
  /// Called once, on any thread; must not wait. The logits live until it returns.
  std::function<void(Status, std::span<const float>)> reply;
};

struct BatcherOptions {
  std::size_t capacity = 256;             ///< Requests that wait; more are shed.
  std::chrono::microseconds linger{300};  ///< How long a request waits for others to share its batch.
};

/// What became of requests so far.
struct BatcherCounters {
  std::uint64_t answered = 0;
  std::uint64_t failed = 0;
  std::uint64_t shed = 0;
  std::uint64_t late = 0;
  std::uint64_t batches = 0;
};

/// Runs single requests in batches: collects them for a moment, picks the smallest bucket that holds them, and answers
/// each by its deadline or says why not. `submit`, `is_ready` and `counters` are thread-safe.
class Batcher {
 public:
  /// `buckets` grow; there is at least one.
  Batcher(std::vector<Bucket> buckets, BatcherOptions options);
  Batcher(const Batcher&) = delete;
  Batcher& operator=(const Batcher&) = delete;
  ~Batcher() { drain(); }

  /// Queues a request, or sheds it at once.
  void submit(Request request);
  /// Answers all that is queued or runs, and sheds what comes later. By one thread.
  void drain();

  /// Whether requests can be answered: the device works, and so does a slot of each bucket.
  [[nodiscard]] bool is_ready() const;
  [[nodiscard]] BatcherCounters counters() const noexcept;

 private:
  struct Batch;

  [[nodiscard]] bool can_take(const Request& request) const;  // With the lock held.
  void run();
  [[nodiscard]] std::shared_ptr<Batch> collect();
  [[nodiscard]] bool launch(const std::shared_ptr<Batch>& batch);
  void finish(Batch& batch);
  void answer(Request& request, Status status, std::span<const float> logits = {});
  void end(const Batch& batch);

  std::vector<Bucket> buckets_;
  const BatcherOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Request> queue_;                   // Guarded by mutex_, as the next three.
  std::size_t running_ = 0;                     // Batches from their collection to their last answer.
  std::chrono::nanoseconds usual_duration_{0};  // Of a batch; a moving average.
  bool is_draining_ = false;
  std::atomic<std::uint64_t> answered_{0}, failed_{0}, shed_{0}, late_{0}, batches_{0};
  std::thread thread_;  // Last: it uses all the rest.
};

}  // namespace weft::serving
