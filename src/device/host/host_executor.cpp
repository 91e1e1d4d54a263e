#include "device/host/host_executor.h"

#include <algorithm>

namespace weft {

HostExecutor::HostExecutor(bool shuffled, std::uint64_t seed, std::function<void(const Action&)> run)
    : shuffled_(shuffled), run_(std::move(run)), random_(seed) {}

HostExecutor::~HostExecutor() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    held_ = false;
  }
  wake_.notify_all();
  if (worker_.joinable()) worker_.join();
}

void HostExecutor::submit(std::span<const Submission> submissions) {
  {
    const std::lock_guard lock(mutex_);
    if (!worker_.joinable()) worker_ = std::thread([this] { work(); });
    // All are linked before any is made ready: a join that finishes at once must find its followers.
    for (const Submission& submission : submissions) {
      HostOperation& operation = *submission.operation;
      operation.order_ = ++submitted_;
      for (const HostOperationRef& earlier : submission.after) {
        if (earlier == nullptr || earlier->finished_) continue;
        earlier->followers_.push_back(submission.operation);
        ++operation.unfinished_;
      }
      unfinished_.emplace(operation.order_, submission.operation);
    }
    std::vector<HostOperationRef> ready;
    for (const Submission& submission : submissions) {
      if (submission.operation->unfinished_ == 0) ready.push_back(submission.operation);
    }
    for (HostOperationRef& operation : ready) make_ready(std::move(operation));
  }
  wake_.notify_one();
}

bool HostExecutor::is_finished(const HostOperationRef& operation) const {
  const std::lock_guard lock(mutex_);
  return operation == nullptr || operation->finished_;
}

bool HostExecutor::is_finishing(const HostOperationRef& join) const {
  const std::lock_guard lock(mutex_);
  return join != nullptr && current_ != nullptr && join->unfinished_ == 1 &&
         std::ranges::find(current_->followers_, join) != current_->followers_.end();
}

void HostExecutor::wait(const HostOperationRef& operation) {
  if (operation == nullptr) return;
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return operation->finished_; });
}

bool HostExecutor::any_unfinished(const std::function<bool(const Action&)>& predicate) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::any_of(unfinished_, [&](const auto& entry) { return predicate(entry.second->action_); });
}

std::size_t HostExecutor::unfinished() const {
  const std::lock_guard lock(mutex_);
  return unfinished_.size();
}

void HostExecutor::abandon() noexcept {
  {
    const std::lock_guard lock(mutex_);
    // Operations hold their followers; a long chain must not be destroyed from its head, one call deep for each.
    for (const auto& [order, operation] : unfinished_) {
      operation->finished_ = true;
      operation->followers_.clear();
    }
    ready_.clear();
    unfinished_.clear();
  }
  progress_.notify_all();
}

void HostExecutor::hold() {
  std::unique_lock lock(mutex_);
  held_ = true;
  progress_.wait(lock, [&] { return current_ == nullptr; });
}

std::size_t HostExecutor::step(std::size_t count) {
  std::unique_lock lock(mutex_);
  steps_ = count;
  wake_.notify_one();
  progress_.wait(lock, [&] { return current_ == nullptr && (steps_ == 0 || ready_.empty()); });
  return count - std::exchange(steps_, 0);
}

void HostExecutor::release() {
  {
    const std::lock_guard lock(mutex_);
    held_ = false;
  }
  wake_.notify_one();
}

void HostExecutor::drain() {
  release();
  std::unique_lock lock(mutex_);
  progress_.wait(lock, [&] { return unfinished_.empty(); });
}

bool HostExecutor::may_take() const noexcept { return !ready_.empty() && (!held_ || steps_ > 0); }

void HostExecutor::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return may_take() || stopping_; });
    if (!may_take()) return;
    current_ = std::move(ready_.begin()->second);
    ready_.erase(ready_.begin());
    if (held_) --steps_;
    lock.unlock();
    run_(current_->action_);
    lock.lock();
    HostOperationRef operation = std::move(current_);
    if (!operation->finished_) finish(std::move(operation));
    progress_.notify_all();
  }
}

void HostExecutor::make_ready(HostOperationRef operation) {
  if (std::holds_alternative<std::monostate>(operation->action_)) {
    finish(std::move(operation));
    return;
  }
  const std::uint64_t priority = shuffled_ ? random_() : 0;
  const std::uint64_t order = operation->order_;
  ready_.emplace(std::pair(priority, order), std::move(operation));
}

void HostExecutor::finish(HostOperationRef operation) {
  // A chain of joins finishes at once; by a list and not by calls, since it may be long.
  std::vector<HostOperationRef> finished{std::move(operation)};
  while (!finished.empty()) {
    const HostOperationRef current = std::move(finished.back());
    finished.pop_back();
    current->finished_ = true;
    unfinished_.erase(current->order_);
    for (HostOperationRef& follower : std::exchange(current->followers_, {})) {
      if (--follower->unfinished_ > 0) continue;
      if (std::holds_alternative<std::monostate>(follower->action_)) {
        finished.push_back(std::move(follower));
      } else {
        make_ready(std::move(follower));
      }
    }
  }
}

}  // namespace weft
