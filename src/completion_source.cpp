#include "context_state.h"
#include "refusal.h"
#include "submission.h"
#include "watcher.h"
#include <weft/completion_source.h>
#include <weft/context.h>

#include <spdlog/fmt/fmt.h>

#include <memory>
#include <utility>

namespace weft {

namespace {

/// What decides a source. Of its own: whoever sees the work decided may drop the source at once.
struct Decision {
  std::shared_ptr<ContextState> context;
  Completion completion;

  [[nodiscard]] bool complete() const {
    const bool is_decided = CompletionAccess::submission(completion)->complete();
    if (is_decided) context->watcher().wake();
    return is_decided;
  }
  [[nodiscard]] bool fail(const std::string& why, std::exception_ptr cause) const {
    Submission& submission = *CompletionAccess::submission(completion);
    const bool is_decided = submission.fail(Error(
        ErrorCode::failed, fmt::format("The work ended while {}: {}", submission.describe(), why), std::move(cause)));
    if (is_decided) context->watcher().wake();
    return is_decided;
  }
};

const std::shared_ptr<ContextState>& require(const std::shared_ptr<ContextState>& context) {
  if (context == nullptr) refuse("The completion source is moved from.");
  return context;
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

}  // namespace

CompletionSource::CompletionSource(const Context& context, std::string label)
    : context_(ContextAccess::state(context)),
      completion_(CompletionAccess::make(SubmissionPtr(new Submission(*context_, std::move(label))))) {}

CompletionSource::CompletionSource(CompletionSource&&) noexcept = default;

CompletionSource& CompletionSource::operator=(CompletionSource&& other) noexcept {
  CompletionSource taken(std::move(other));
  std::swap(context_, taken.context_);
  std::swap(completion_, taken.completion_);
  return *this;
}

CompletionSource::~CompletionSource() {
  if (context_ != nullptr && !completion_.is_done())
    static_cast<void>(Decision{context_, completion_}.fail("its source was dropped before it was complete", nullptr));
}

Completion CompletionSource::completion() const {
  static_cast<void>(require(context_));
  return completion_;
}

bool CompletionSource::complete() { return Decision{require(context_), completion_}.complete(); }

bool CompletionSource::fail(std::exception_ptr cause) {
  const Decision decision{require(context_), completion_};
  const std::string why = text_of(cause);
  return decision.fail(why, std::move(cause));
}

}  // namespace weft
