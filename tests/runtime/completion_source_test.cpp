#include "catch.h"
#include "runtime/memory_work.h"
#include "support/deadlines.h"
#include <weft/completion_source.h>
#include <weft/error.h>

#include <exception>
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

}  // namespace weft::test
