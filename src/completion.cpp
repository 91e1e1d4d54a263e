#include "context_state.h"
#include "refusal.h"
#include "submission.h"
#include "watcher.h"
#include <weft/completion.h>

#include <memory>
#include <utility>

namespace weft {

namespace {

/// Calls back once work is no longer pending.
class CompletionWatch final : public Watch {
 public:
  CompletionWatch(std::shared_ptr<ContextState> home, Completion completion, std::function<void()> callback)
      : home_(std::move(home)), completion_(std::move(completion)), callback_(std::move(callback)) {}

  bool look(bool ask) override {
    if (!completion_.is_done() && ask) CompletionAccess::submission(completion_)->ask_device();
    if (!completion_.is_done()) return false;
    const auto callback = std::move(callback_);
    callback();
    return true;
  }

 private:
  std::shared_ptr<ContextState> home_;  // Whose watcher looks.
  Completion completion_;
  std::function<void()> callback_;
};

}  // namespace

Completion::Completion(const Completion& other) noexcept : submission_(other.submission_) {
  if (submission_ != nullptr) submission_->share();
}

Completion::Completion(Completion&& other) noexcept : submission_(std::exchange(other.submission_, nullptr)) {}

Completion& Completion::operator=(const Completion& other) noexcept { return *this = Completion(other); }

Completion& Completion::operator=(Completion&& other) noexcept {
  Completion taken(std::move(other));
  std::swap(submission_, taken.submission_);
  return *this;
}

Completion::~Completion() {
  if (submission_ != nullptr) submission_->drop();
}

CompletionStatus Completion::poll() const noexcept {
  return submission_ == nullptr ? CompletionStatus::done : submission_->poll();
}

bool Completion::wait(Deadline deadline) const { return submission_ == nullptr || submission_->wait(deadline); }

void Completion::result() const {
  if (poll() == CompletionStatus::pending) throw Error(ErrorCode::busy, "The work is not done yet.");
  if (const auto failure = error()) throw Error(*failure);
}

std::optional<Error> Completion::error() const {
  return submission_ == nullptr ? std::optional<Error>() : submission_->error();
}

void Completion::then(std::function<void()> callback) const {
  if (!callback) refuse("The callback of a completion is empty.");
  if (is_done()) return callback();
  std::shared_ptr<ContextState> home = submission_->home().lock();
  if (home == nullptr) {
    // The context's last handle is going, which waits for its work; its watcher takes nothing any more.
    try {
      static_cast<void>(submission_->wait(Deadline::max()));
    } catch (const Error&) {
      // An outcome as any other.
    }
    return callback();
  }
  Watcher& watcher = home->watcher();
  watcher.add(std::make_unique<CompletionWatch>(std::move(home), *this, std::move(callback)));
}

bool Completion::cancel() const {
  if (submission_ == nullptr || !submission_->cancel()) return false;
  if (const auto home = submission_->home().lock()) home->watcher().wake();
  return true;
}

RunProfile Completion::profile() const noexcept {
  return submission_ == nullptr ? RunProfile{} : submission_->profile();
}

}  // namespace weft
