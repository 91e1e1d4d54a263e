#pragma once

#include <weft/completion.h>
#include <weft/export.h>

#include <exception>
#include <memory>
#include <string>

namespace weft {

class Context;
class ContextState;

/// Work of the host that submissions can follow: a tokenizer, a download, a stage of another library.
///
/// Its completion is pending until one of `complete`, `fail` or Completion::cancel decides it. Requests and copies that
/// follow it (SubmitOptions::after) are accepted at once and launched when it is complete; when it fails or is
/// cancelled they are not, and say so. Keeps the context, as a handle of it does: who waits or is to be called back
/// learns the outcome though all else of the context is gone. Move-only; thread-safe but for moves. Dropped while it is
/// pending, it fails. A moved-from object refuses every call with `invalid`.
class WEFT_API CompletionSource {
 public:
  /// `label` is for messages.
  explicit CompletionSource(const Context& context, std::string label = {});
  CompletionSource(CompletionSource&&) noexcept;
  CompletionSource& operator=(CompletionSource&& other) noexcept;
  ~CompletionSource();

  [[nodiscard]] Completion completion() const;
  /// False when it was decided before; nothing changes then.
  bool complete();
  /// The same, with the reason for what follows it. A null `cause` is one that nobody knows.
  bool fail(std::exception_ptr cause);

 private:
  std::shared_ptr<ContextState> context_;  // Null when moved from.
  Completion completion_;
};

}  // namespace weft
