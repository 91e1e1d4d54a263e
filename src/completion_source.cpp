#include "context_state.h"
#include "refusal.h"
#include "submission.h"
#include "watcher.h"
#include <weft/completion_source.h>
#include <weft/context.h>

#include <spdlog/fmt/fmt.h>

#include <utility>

namespace weft {

namespace {

Submission& require(bool is_live, const Completion& completion) {
  if (!is_live) refuse("The completion source is moved from.");
  return *CompletionAccess::submission(completion);
}

std::string text_of(const std::exception_ptr& cause) {
  if (cause == nullptr) return "nobody said why";
  try {
    std::rethrow_exception(cause);
  } catch (const std::exception& exception) {
    return exception.what();
  } catch (...) {
    return "an exception that is no std::exception";
  }
}

void wake(const Submission& submission) noexcept {
  if (const auto home = submission.home().lock()) home->watcher().wake();
}

bool fail_with(Submission& submission, const std::string& why, std::exception_ptr cause) {
  const bool is_decided = submission.fail(Error(
      ErrorCode::failed, fmt::format("The work ended while {}: {}", submission.describe(), why), std::move(cause)));
  if (is_decided) wake(submission);
  return is_decided;
}

}  // namespace

CompletionSource::CompletionSource(const Context& context, std::string label)
    : completion_(
          CompletionAccess::make(SubmissionPtr(new Submission(*ContextAccess::state(context), std::move(label))))),
      is_live_(true) {}

CompletionSource::CompletionSource(CompletionSource&& other) noexcept
    : completion_(std::move(other.completion_)), is_live_(std::exchange(other.is_live_, false)) {}

CompletionSource& CompletionSource::operator=(CompletionSource&& other) noexcept {
  CompletionSource taken(std::move(other));
  std::swap(completion_, taken.completion_);
  std::swap(is_live_, taken.is_live_);
  return *this;
}

CompletionSource::~CompletionSource() {
  if (is_live_ && !completion_.is_done())
    fail_with(*CompletionAccess::submission(completion_), "its source was dropped before it was complete", nullptr);
}

Completion CompletionSource::completion() const {
  static_cast<void>(require(is_live_, completion_));
  return completion_;
}

bool CompletionSource::complete() {
  Submission& submission = require(is_live_, completion_);
  if (!submission.complete()) return false;
  wake(submission);
  return true;
}

bool CompletionSource::fail(std::exception_ptr cause) {
  Submission& submission = require(is_live_, completion_);
  const std::string why = text_of(cause);
  return fail_with(submission, why, std::move(cause));
}

}  // namespace weft
