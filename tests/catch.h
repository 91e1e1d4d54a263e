#pragma once

// Catch2 2.13 (Debian 12) and 3.x (Ubuntu 24.04) under one name.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
#else
#include <catch2/catch.hpp>
#endif

#include <weft/error.h>

#include <cstdlib>
#include <string_view>
#include <utility>

namespace weft::test {

/// The error that `call` throws; fails the test case when it throws none.
template <class F>
[[nodiscard]] Error refusal(F&& call) {
  try {
    std::forward<F>(call)();
  } catch (const Error& error) {
    return error;
  }
  FAIL("expected a weft::Error, but the call returned");
  std::abort();  // FAIL throws; the compiler cannot know.
}

[[nodiscard]] inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

}  // namespace weft::test
