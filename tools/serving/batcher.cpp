#include "serving/batcher.h"

#include <weft/completion.h>
#include <weft/error.h>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

namespace weft::serving {

/// Requests that run together.
struct Batcher::Batch {
  std::vector<Request> requests;
  Clock::time_point launched = {};
  std::uint32_t rows = 0;             // Of the bucket that it runs in.
  std::optional<Inference> run = {};  // Leases the slot until the batch is gone.
};

Batcher::Batcher(std::vector<Bucket> buckets, BatcherOptions options)
    : buckets_(std::move(buckets)), options_(options), thread_([this] { run(); }) {}

void Batcher::submit(Request request) {
  if (request.image.empty()) return request.reply(is_ready() ? Status::answered : Status::shed, {});
  {
    const std::lock_guard lock(mutex_);
    if (can_take(request)) {
      queue_.push_back(std::move(request));
      changed_.notify_all();
      return;
    }
  }
  answer(request, Status::shed);
}

// What cannot be answered in time is refused at once, while the client can still ask somebody else. A guess that is too
// long corrects itself: an idle server takes everything, and measures again.
bool Batcher::can_take(const Request& request) const {
  if (is_draining_ || queue_.size() >= options_.capacity) return false;
  if (queue_.empty() && running_ == 0) return true;
  const std::size_t batches_ahead = running_ + queue_.size() / buckets_.back().batch;
  return request.arrived + usual_duration_ * (batches_ahead + 1) <= request.deadline;
}

// A slot whose run hangs is never used again. Where a bucket has no other, its requests fail, and only a new process
// mends it: the balancer in front sends them elsewhere meanwhile.
bool Batcher::is_ready() const {
  {
    const std::lock_guard lock(mutex_);
    if (is_draining_) return false;
  }
  return std::ranges::all_of(buckets_, [](const Bucket& bucket) {
    const SlotStatistics slots = bucket.model.statistics();
    return slots.unhealthy < slots.slots && bucket.model.context().ready();
  });
}

void Batcher::run() {
  while (const std::shared_ptr<Batch> batch = collect()) {
    try {
      if (launch(batch)) continue;  // `finish` ends it.
    } catch (const std::exception& error) {
      spdlog::error("A batch is not run: {}", error.what());
      for (Request& request : batch->requests) answer(request, Status::failed);
    }
    end(*batch);
  }
}

// Null when it is over.
std::shared_ptr<Batcher::Batch> Batcher::collect() {
  const std::size_t most = buckets_.back().batch;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return is_draining_ || !queue_.empty(); });
  if (queue_.empty()) return nullptr;
  changed_.wait_until(lock, queue_.front().arrived + options_.linger,
                      [&] { return is_draining_ || queue_.size() >= most; });
  auto batch = std::make_shared<Batch>();
  while (!queue_.empty() && batch->requests.size() < most) {
    batch->requests.push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  ++running_;
  return batch;
}

// False when nobody waits for it any more.
bool Batcher::launch(const std::shared_ptr<Batch>& batch) {
  std::vector<Request>& requests = batch->requests;
  const auto fits = [&](const Bucket& bucket) { return bucket.batch >= requests.size(); };
  Bucket& bucket = *std::ranges::find_if(buckets_, fits);
  // Requests queue up meanwhile, and are shed once the queue is full: this is the backpressure.
  std::optional<ModelSlot> slot = bucket.model.acquire(std::ranges::max(requests, {}, &Request::deadline).deadline);
  const Clock::time_point now = Clock::now();
  std::erase_if(requests, [&](Request& request) {
    if (slot && now < request.deadline) return false;
    answer(request, Status::late);
    return true;
  });
  if (requests.empty()) return false;

  const std::span<float> images = slot->input<float>(0);  // Pinned staging: written once, in place.
  auto end = images.begin();
  for (const Request& request : requests) end = std::ranges::copy(request.image, end).out;
  std::fill(end, images.end(), 0.0f);
  batch->rows = bucket.batch;
  batch->launched = now;
  batch->run = std::move(*slot).submit();  // One graph launch.
  batch->run->completion().then([this, batch] { finish(*batch); });
  return true;
}

// On weft's watcher thread, which every batch of the context shares: replies are queued and not sent here.
void Batcher::finish(Batch& batch) {
  std::span<const float> logits;  // Stays empty when the run failed.
  try {
    if (batch.run->wait(Clock::now())) logits = batch.run->output<float>(0);
  } catch (const Error& error) {
    spdlog::error("A batch failed: {}", error.what());
  }
  const std::size_t classes = logits.size() / batch.rows;
  const Clock::time_point now = Clock::now();
  for (std::size_t i = 0; i < batch.requests.size(); ++i) {
    Request& request = batch.requests[i];
    if (logits.empty()) {
      answer(request, Status::failed);
    } else if (now > request.deadline) {
      answer(request, Status::late);
    } else {
      answer(request, Status::answered, logits.subspan(i * classes, classes));
    }
  }
  ++batches_;
  end(batch);
}

void Batcher::answer(Request& request, Status status, std::span<const float> logits) {
  switch (status) {
    case Status::answered:
      ++answered_;
      break;
    case Status::failed:
      ++failed_;
      break;
    case Status::shed:
      ++shed_;
      break;
    case Status::late:
      ++late_;
      break;
  }
  request.reply(status, logits);
}

void Batcher::end(const Batch& batch) {
  const std::lock_guard lock(mutex_);
  if (batch.run) {
    const std::chrono::nanoseconds took = Clock::now() - batch.launched;
    usual_duration_ = usual_duration_.count() == 0 ? took : (7 * usual_duration_ + took) / 8;
  }
  --running_;
  changed_.notify_all();
}

void Batcher::drain() {
  {
    const std::lock_guard lock(mutex_);
    is_draining_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return running_ == 0; });
}

BatcherCounters Batcher::counters() const noexcept { return {answered_, failed_, shed_, late_, batches_}; }

}  // namespace weft::serving
