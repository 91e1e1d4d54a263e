#include "catch.h"
#include "error_context.h"
#include <weft/error.h>

#include <exception>
#include <set>
#include <string>
#include <type_traits>
#include <utility>

namespace {

using weft::Error;
using weft::ErrorCode;

static_assert(std::is_base_of_v<std::exception, Error>);
static_assert(std::is_nothrow_copy_constructible_v<Error> && std::is_nothrow_copy_assignable_v<Error>);
static_assert(std::is_nothrow_move_constructible_v<Error> && std::is_nothrow_move_assignable_v<Error>);

TEST_CASE("An error without contexts reads as its sentence", "[words][error]") {
  const Error error(ErrorCode::busy, "All 4 slots are in use.");
  CHECK(error.code() == ErrorCode::busy);
  CHECK(error.sentence() == "All 4 slots are in use.");
  CHECK(error.contexts().empty());
  CHECK(std::string(error.what()) == "All 4 slots are in use.");
}

TEST_CASE("Contexts are kept innermost first and read outermost first", "[words][error]") {
  Error error(ErrorCode::invalid, "Argument 2 (\"b1\") is 4 bytes; the parameter takes 8.");
  error.add_context("validating commands[3], dispatch of \"linear\"");
  error.add_context("preparing the fragment \"batch32\"");
  REQUIRE(error.contexts().size() == 2);
  CHECK(error.contexts()[0] == "validating commands[3], dispatch of \"linear\"");
  CHECK(error.sentence() == "Argument 2 (\"b1\") is 4 bytes; the parameter takes 8.");
  CHECK(std::string(error.what()) ==
        "While preparing the fragment \"batch32\": while validating commands[3], dispatch of \"linear\": "
        "Argument 2 (\"b1\") is 4 bytes; the parameter takes 8.");
}

TEST_CASE("A context added to a copy leaves the original alone", "[words][error]") {
  const Error original(ErrorCode::io, "The file is empty.");
  Error copy = original;
  CHECK(copy.what() == original.what());  // One text, shared.
  copy.add_context("opening \"a\"");
  CHECK(original.contexts().empty());
  CHECK(std::string(original.what()) == "The file is empty.");
  CHECK(std::string(copy.what()) == "While opening \"a\": The file is empty.");
}

TEST_CASE("An error that was moved from still has its text", "[words][error]") {
  Error error(ErrorCode::internal, "The arena is lost.");
  const Error taken = std::move(error);
  CHECK(taken.sentence() == "The arena is lost.");
  CHECK(error.sentence() == "The arena is lost.");  // NOLINT(bugprone-use-after-move): what is tested.
}

TEST_CASE("An error says where in the sources it began", "[words][error]") {
  const auto line = __LINE__ + 1;
  Error error(ErrorCode::internal, "The arena is lost.");
  error.add_context("preparing");
  CHECK(error.where().line() == static_cast<unsigned>(line));
  CHECK(weft::test::contains(error.where().file_name(), "error_test.cpp"));
}

TEST_CASE("Every code has a name of its own", "[words][error]") {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(ErrorCode::internal); ++code) {
    names.insert(to_string(static_cast<ErrorCode>(code)));
  }
  CHECK(names == std::set<std::string_view>{"invalid", "busy", "out_of_memory", "unsupported", "failed", "cancelled",
                                            "device_lost", "io", "internal"});
}

TEST_CASE("in_context describes a step only when it fails", "[words][error]") {
  int described = 0;
  const auto describe = [&] {
    ++described;
    return std::string("counting");
  };
  CHECK(weft::in_context(describe, [] { return 7; }) == 7);
  CHECK(described == 0);

  const auto error = weft::test::refusal(
      [&] { weft::in_context(describe, [] { throw Error(ErrorCode::invalid, "The count is zero."); }); });
  CHECK(described == 1);
  CHECK(std::string(error.what()) == "While counting: The count is zero.");
}

TEST_CASE("in_context passes the exceptions of others through", "[words][error]") {
  const auto call = [] { weft::in_context([] { return std::string("counting"); }, [] { throw std::bad_alloc(); }); };
  CHECK_THROWS_AS(call(), std::bad_alloc);
}

}  // namespace
