#include "support/new_process.h"

#include "catch.h"

#include <cstdio>
#include <cstdlib>
#include <spawn.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace weft::test {

namespace {

constexpr const char* kChild = "WEFT_PROCESS_CHILD";

}  // namespace

void in_new_process(const std::function<void()>& scenario, int code) {
  if (std::getenv(kChild) != nullptr) {
    ::alarm(kScenarioSeconds);
    scenario();
    FAIL("the scenario did not end its process");
  }
  ::setenv(kChild, "1", 1);
  std::string program = "/proc/self/exe";
  std::string name = Catch::getResultCapture().getCurrentTestName();
  char* const arguments[] = {program.data(), name.data(), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawn(&child, program.c_str(), nullptr, nullptr, arguments, environ);
  ::unsetenv(kChild);
  REQUIRE(error == 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == code);
}

void require(bool condition, int code) {
  if (!condition) std::_Exit(code);
}

bool succeeds_in_child(const std::function<void()>& work, unsigned seconds) {
  static_cast<void>(std::fflush(nullptr));  // The child's exit would write it a second time.
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(seconds);
    work();
    std::exit(0);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child) return false;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return true;
  static_cast<void>(std::fprintf(stderr,
                                 WIFEXITED(status) ? "The child exits with %d.\n" : "Signal %d ends the child.\n",
                                 WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status)));
  return false;
}

}  // namespace weft::test
