#pragma once

#include <functional>

// Scenarios in a process of their own: what a fork or an exit does to a process would otherwise meet the state of the
// other cases. The process is this program started again for one test case.

namespace weft::test {

/// Seconds after which a scenario's process is ended as one that hangs.
inline constexpr unsigned kScenarioSeconds = 20;

/// Runs `scenario`, which ends the process, in a new process that runs this case alone. An exit code other than `code`,
/// a signal, or the alarm that ends a hanging process fails the case.
void in_new_process(const std::function<void()>& scenario, int code = 0);

/// Ends the process at once with a code that tells what was wrong.
void require(bool condition, int code);

/// Forks. The child runs `work` and exits with its static objects destroyed; returns whether it did, in the time given.
[[nodiscard]] bool succeeds_in_child(const std::function<void()>& work, unsigned seconds = 1);

}  // namespace weft::test
