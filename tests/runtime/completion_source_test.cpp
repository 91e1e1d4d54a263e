#include "catch.h"
#include "context_state.h"
#include "runtime/memory_work.h"
#include "support/deadlines.h"
#include "support/detached.h"
#include <weft/completion_source.h>
#include <weft/error.h>

#include <atomic>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace weft::test {
namespace {

/// The text of the exception behind an error.
std::string cause_of(const Error& error) {
  if (error.cause() == nullptr) return "none";
  try {
    std::rethrow_exception(error.cause());
  } catch (const std::exception& cause) {
    return cause.what();
  }
}

enum class Outcome { none, done, failed, cancelled };

Detached await(Completion completion, std::atomic<Outcome>& outcome) {
  Outcome came_to = Outcome::done;
  try {
    co_await completion;
  } catch (const Error& error) {
    came_to = error.code() == ErrorCode::cancelled ? Outcome::cancelled
              : error.code() == ErrorCode::failed  ? Outcome::failed
                                                   : Outcome::none;
  }
  outcome = came_to;
}

/// A source that is all that is left of its context.
struct LastHandle {
  std::weak_ptr<ContextState> context;
  std::optional<CompletionSource> source;

  LastHandle() {
    const Context opened = open_context();
    context = ContextAccess::state(opened);
    source.emplace(opened, "s");
  }
  [[nodiscard]] bool is_over() const { return context.expired(); }
};

}  // namespace

TEST_CASE("A source is decided once", "[runtime][completion_source][R15]") {
  const Context context = open_context();
  CompletionSource source(context, "s");
  const Completion completion = source.completion();
  CHECK(completion.poll() == CompletionStatus::pending);
  CHECK(!completion.wait(past()));
  CHECK(source.complete());
  CHECK(completion.poll() == CompletionStatus::done);
  CHECK(completion.wait(past()));
  CHECK(!source.complete());
  CHECK(!source.fail(nullptr));
  CHECK(!completion.cancel());
  CHECK(completion.poll() == CompletionStatus::done);
}

TEST_CASE("All who wait for a source that fails share its cause", "[runtime][completion_source][R15]") {
  const Context context = open_context();
  CompletionSource source(context, "tokenizer");
  std::vector<std::string> texts(4);
  std::vector<std::exception_ptr> causes(4);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    threads.emplace_back([&, i, completion = source.completion()] {
      try {
        static_cast<void>(completion.wait(in_a_minute()));
      } catch (const Error& error) {
        texts[i] = error.what();
        causes[i] = error.cause();
      }
    });
  }
  CHECK(source.fail(std::make_exception_ptr(std::runtime_error("no vocabulary"))));
  for (std::thread& thread : threads) thread.join();
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CHECK(texts[i] == "The work ended while waiting for \"tokenizer\": no vocabulary");
    CHECK(causes[i] != nullptr);
    CHECK(causes[i] == causes[0]);
  }
  const Error error = refusal([&] { source.completion().result(); });
  CHECK(error.code() == ErrorCode::failed);
  CHECK(cause_of(error) == "no vocabulary");
}

TEST_CASE("A source that is dropped undecided fails", "[runtime][completion_source]") {
  const Context context = open_context();
  Completion completion;
  {
    CompletionSource source(context, "s");
    completion = source.completion();
    CompletionSource moved(std::move(source));
    CHECK(completion.poll() == CompletionStatus::pending);
    CHECK(refusal([&] { source.complete(); }).code() == ErrorCode::invalid);
    CHECK(refusal([&] { static_cast<void>(source.completion()); }).code() == ErrorCode::invalid);
  }
  const Error error = refusal([&] { completion.result(); });
  CHECK(error.code() == ErrorCode::failed);
  CHECK(contains(error.what(), "waiting for \"s\": its source was dropped before it was complete"));
  CHECK(error.cause() == nullptr);
}

TEST_CASE("A source that is cancelled takes no result", "[runtime][completion_source][R17]") {
  const Context context = open_context();
  CompletionSource source(context, "s");
  CHECK(source.completion().cancel());
  CHECK(source.completion().poll() == CompletionStatus::cancelled);
  CHECK(!source.complete());
  const Error error = refusal([&] { static_cast<void>(source.completion().wait(past())); });
  CHECK(error.code() == ErrorCode::cancelled);
  CHECK(contains(error.what(), "The work was cancelled while waiting for \"s\"."));
}

TEST_CASE("An assigned source fails the one that it takes the place of", "[runtime][completion_source]") {
  const Context context = open_context();
  CompletionSource source(context, "first");
  const Completion first = source.completion();
  source = CompletionSource(context, "second");
  CHECK(first.poll() == CompletionStatus::failed);
  CHECK(source.completion().poll() == CompletionStatus::pending);
  CHECK(source.complete());
}

TEST_CASE("Callbacks and coroutines that wait for a source need no other handle of its context",
          "[runtime][completion_source][R15][R20]") {
  LastHandle last;
  const Completion completion = last.source->completion();
  std::atomic<int> calls{0};
  std::atomic<Outcome> outcome{Outcome::none};
  completion.then([&] { ++calls; });
  await(completion, outcome);
  CHECK(calls == 0);
  CHECK(outcome.load() == Outcome::none);
  CHECK(completion.poll() == CompletionStatus::pending);
  Outcome expected = Outcome::none;
  SECTION("It is complete") {
    CHECK(last.source->complete());
    expected = Outcome::done;
  }
  SECTION("It fails") {
    CHECK(last.source->fail(nullptr));
    expected = Outcome::failed;
  }
  SECTION("It is dropped") {
    last.source.reset();
    expected = Outcome::failed;
  }
  SECTION("It is cancelled") {
    CHECK(completion.cancel());
    expected = Outcome::cancelled;
  }
  CHECK(eventually([&] { return calls == 1 && outcome.load() == expected; }));
  last.source.reset();
  CHECK(eventually([&] { return last.is_over(); }));
  CHECK(calls == 1);
}

TEST_CASE("A context ends with the last source that keeps it", "[runtime][completion_source][R20]") {
  LastHandle last;
  CHECK(!last.is_over());
  SECTION("It is dropped") { last.source.reset(); }
  SECTION("It is assigned another") {
    const Context other = open_context();
    last.source = CompletionSource(other, "another");
  }
  SECTION("It is moved and the new one is dropped") { const CompletionSource moved(std::move(*last.source)); }
  CHECK(last.is_over());
}

TEST_CASE("A callback may drop the last source of its context on the watcher's thread",
          "[runtime][completion_source][R15][R20]") {
  LastHandle last;
  std::atomic<bool> is_dropped{false};
  const Completion completion = last.source->completion();
  completion.then([&] {
    last.source.reset();
    is_dropped = true;
  });
  SECTION("It was cancelled") { CHECK(completion.cancel()); }
  SECTION("Whoever completed it may still be at it") { CHECK(last.source->complete()); }
  CHECK(eventually([&] { return is_dropped.load(); }));
  CHECK(eventually([&] { return last.is_over(); }));
  CHECK(completion.is_done());
}

}  // namespace weft::test
